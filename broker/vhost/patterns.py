r"""Regular expressions of permissions and policies: PCRE, as RabbitMQ has them, with a bound on their work.

Names are matched as bytes and anywhere (unanchored). PCRE2 counts its steps, and a search that needs more
than ``PATTERN_STEPS_MAX`` ends without a match, as in RabbitMQ, whose limit is ten million; so a permission then
refuses and a policy does not apply. The expression is logged once. ``docs/decisions/0023-pcre2.md`` has
the measurements.

PCRE2 counts anew at each place of the name where a match may begin. The search over these places is
therefore part of the expression (``\A.*?`` before it), so that one count covers the whole search. A
step copies the places of all groups, so expressions with many groups have fewer steps.

Differs from RabbitMQ: ``(?R)`` and ``(?0)``, which would repeat that search, ``(*PRUNE)``, ``(*SKIP)`` and
``(*THEN)``, which would end it, and control verbs at the start, ``(*UTF8)`` and the like, are refused as
invalid.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import pcre2

from leveret.core.errors import ConfigError
from leveret.core.limits import PATTERN_STEPS_MAX
from leveret.core.log.loggers import logger

log = logger(__name__)

HEAP_KIB_MAX: Final = 1_024
GROUPS_FREE: Final = 32
COMPILED_MAX: Final = 4_096

_WHOLE: Final = re.compile(rb"(?<!\\)(?:\\\\)*(?:\(\?(?:R|[+-]?0)\)|\\g[<']0[>'])")
_ENDS_SEARCH: Final = re.compile(rb"(?<!\\)(?:\\\\)*\(\*(?:PRUNE|SKIP|THEN)[:)]")
# An expression may end inside a quotation or inside a comment of (?x).
_ENDS: Final = (b")", b"\\E)", b"\n)")
# The texts of Erlang's re, by the number of PCRE2's error, and how far PCRE2's place lies behind Erlang's.
_ERRORS: Final = {
    106: ("missing terminating ] for character class", 0),
    108: ("range out of order in character class", 1),
    109: ("nothing to repeat", 1),
    111: ("unrecognized character after (? or (?-", 1),
    114: ("missing )", 0),
    122: ("unmatched parentheses", 1),
    125: ("lookbehind assertion is not fixed length", 0),
    142: ("syntax error in subpattern name (missing terminator)", 0),
    144: ("group name must start with a non-digit", 1),
}


class PatternError(ConfigError):
    """A regular expression cannot be read.

    Attributes:
        position: where, in bytes.
    """

    def __init__(self, pattern: str, reason: str, position: int) -> None:
        super().__init__(f"invalid regular expression {pattern!r}: {reason} at {position}")
        self.pattern = pattern
        self.reason = reason
        self.position = position


class Pattern:
    """One expression; ``text`` is as the operator wrote it."""

    __slots__ = ("_code", "_is_logged", "text")

    def __init__(self, text: str, code: Any) -> None:
        self.text = text
        self._code = code
        self._is_logged = False

    def finds(self, name: bytes) -> bool:
        """Return whether the expression is found in a name; not within the bound counts as not found."""
        try:
            return self._code.search(name) is not None
        except (pcre2.LibraryError, MemoryError) as error:
            if not self._is_logged:
                self._is_logged = True
                log.warning(
                    "expression stopped, counts as not found pattern=%s name=%s reason=%s",
                    self.text, name.decode("utf-8", "surrogateescape"), error,
                )  # fmt: skip
            return False


@lru_cache(COMPILED_MAX)
def compile_pattern(pattern: str) -> Pattern:
    """Return an expression to search names with; PatternError: it cannot be read."""
    try:
        octets = pattern.encode("utf-8", "surrogateescape")
        if octets.startswith(b"(*"):
            raise PatternError(pattern, "control verbs are not supported", 0)
        if whole := _WHOLE.search(octets):
            raise PatternError(pattern, "recursion of the whole is not supported", whole.start())
        if verb := _ENDS_SEARCH.search(octets):
            reason = "(*PRUNE), (*SKIP) and (*THEN) are not supported"
            raise PatternError(pattern, reason, verb.start())
        groups = pcre2.compile(octets, jit=False).groups
        return Pattern(
            pattern, _bounded(octets, PATTERN_STEPS_MAX * GROUPS_FREE // (GROUPS_FREE + groups))
        )
    except pcre2.PatternError as error:
        reason, shift = _ERRORS.get(error.code, (error.msg.partition("; ")[2], 0))
        raise PatternError(pattern, reason, error.pos - shift) from error
    except UnicodeEncodeError as error:
        raise PatternError(pattern, "not UTF-8", error.start) from error


def _bounded(octets: bytes, steps: int) -> Any:
    """Compile an expression that can be read, with its bound and its search."""
    start = b"(*LIMIT_MATCH=%d)(*LIMIT_HEAP=%d)\\A(?s:.*?)(?:" % (steps, HEAP_KIB_MAX)
    for end in _ENDS[:-1]:
        try:
            return pcre2.compile(start + octets + end, jit=False)
        except pcre2.PatternError:
            continue  # the end was taken as part of the expression, which leaves the group open
    return pcre2.compile(start + octets + _ENDS[-1], jit=False)
