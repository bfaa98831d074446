r"""Regular expressions of permissions and policies: RabbitMQ's are PCRE over bytes, ours Python's.

Names are matched as UTF-8 bytes and anywhere (unanchored). Syntax that differs is
translated: ``(?<name>``, ``\z``, ``\Q...\E``, ``\h`` and POSIX classes such as ``[[:alnum:]]``. The
rest, possessive quantifiers and atomic groups included, is the same. PCRE's recursion, conditions on
recursion and ``\R``, ``\X`` have no counterpart and are refused as invalid.
"""

from __future__ import annotations

import re
from typing import Final

from leveret.core.errors import ConfigError

_CLASSES: Final = {
    b"alpha": rb"a-zA-Z",
    b"digit": rb"0-9",
    b"alnum": rb"a-zA-Z0-9",
    b"upper": rb"A-Z",
    b"lower": rb"a-z",
    b"space": rb"\s",
    b"blank": rb" \t",
    b"punct": rb"!-/:-@\[-`{-~",
    b"xdigit": rb"0-9a-fA-F",
    b"word": rb"\w",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"print": rb" -~",
    b"graph": rb"!-~",
}
_TOKEN: Final = re.compile(
    rb"""
      \\Q (?P<quoted> .*? ) (?: \\E | \Z )
    | (?P<end> \\z ) | (?P<soft_end> \\Z ) | (?P<blank> \\h )
    | \\ .
    | \[ : (?P<posix> [a-z]+ ) : \]
    | (?P<named> \(\?< ) (?= [A-Za-z_] )
    """,
    re.VERBOSE | re.DOTALL,
)
_FIXED: Final = {"end": rb"\Z", "soft_end": rb"(?=\n?\Z)", "blank": rb"[ \t]", "named": rb"(?P<"}


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


def compile_pattern(pattern: str) -> re.Pattern[bytes]:
    """Return an expression to ``search`` bytes with; PatternError: it cannot be read."""
    wire = pattern.encode("utf-8", "surrogateescape")
    try:
        return re.compile(_TOKEN.sub(_translated, wire))
    except (re.error, OverflowError, RecursionError) as error:
        position = getattr(error, "pos", None)
        raise PatternError(pattern, str(getattr(error, "msg", error)), position or 0) from error


def _translated(token: re.Match[bytes]) -> bytes:
    kind = token.lastgroup
    if kind is None:
        return token.group()
    if kind == "quoted":
        return re.escape(token["quoted"])
    if kind == "posix":
        return _CLASSES.get(token["posix"], token.group())
    return _FIXED[kind]
