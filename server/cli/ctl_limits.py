"""The limits that ``leveret ctl`` sets: rabbitmqctl's arguments and error texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.core.errors import LeveretError
from leveret.core.sizes import SizeLimit, parse_size


class UsageError(LeveretError):
    """The arguments do not fit the verb."""


def watermark(words: list[str]) -> tuple[str, SizeLimit]:
    """Parse ``FRACTION`` or ``absolute SIZE``; return the banner's text and the limit.

    Raises:
        UsageError: the arguments have another form.
    """
    value, is_bare = _value(words, "absolute")
    if not is_bare:
        return f"{value} bytes", SizeLimit(_size(value))
    share = _number(value)
    if not 0.0 <= share <= 1.0:
        raise UsageError("The threshold should be a fraction between 0.0 and 1.0")
    return value, SizeLimit(share=share)


def disk_limit(words: list[str]) -> tuple[str, SizeLimit]:
    """Parse ``SIZE`` or ``mem_relative MULTIPLE``; return the banner's text and the limit.

    Raises:
        UsageError: the arguments have another form.
    """
    value, is_bare = _value(words, "mem_relative")
    if is_bare:
        return f"{value} bytes", SizeLimit(_size(value))
    share = _number(value)
    if share < 0.0:
        raise UsageError("Bad argument")
    return f"{value} times the total RAM", SizeLimit(share=share)


def _value(words: list[str], kind: str) -> tuple[str, bool]:
    """Return the value, and whether it comes without a keyword."""
    if words and words[0] == kind:
        rest, is_bare = words[1:], False
    else:
        rest, is_bare = words, True
    if len(rest) != 1:
        raise UsageError("too many arguments." if rest else "not enough arguments.")
    return rest[0], is_bare


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError("Bad argument") from None


def _size(value: str) -> int:
    try:
        return parse_size(value)
    except ValueError:
        raise UsageError("Invalid units.") from None


READERS: Final[dict[str, Callable[[list[str]], tuple[str, SizeLimit]]]] = {
    "set_vm_memory_high_watermark": watermark,
    "set_disk_free_limit": disk_limit,
}
