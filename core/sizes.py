"""Sizes as operators write them: ``512MiB``, ``2GB``, or a share of the machine's RAM.

The units are RabbitMQ's (``rabbit_resource_monitor_misc:parse_information_unit/1``): ``k`` and ``kiB`` are
1,024, ``kB`` is 1,000, and so on. Differs from RabbitMQ: upper and lower case may be mixed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_BASES: Final = {"": 1_024, "ib": 1_024, "b": 1_000}
_POWERS: Final = {"k": 1, "m": 2, "g": 3}
_SIZE = re.compile(r"([0-9]+)(?:([kmg])(ib|b|))?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Parse a number of bytes, with or without a unit; ValueError: it is not a size."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("a size such as 1024, 512MiB or 2GB")
    number, letter, rest = found.groups()
    if letter is None:
        return int(number)
    return int(int(number) * _BASES[rest.lower()] ** _POWERS[letter.lower()])


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A limit in bytes, or relative to the RAM.

    Attributes:
        size_bytes: the limit, if ``share`` is None.
        share: of the RAM; None for a limit in bytes.
    """

    size_bytes: int = 0
    share: float | None = None

    def of(self, total_bytes: int) -> int:
        """Return the limit in bytes on a machine with ``total_bytes`` of RAM."""
        return self.size_bytes if self.share is None else int(total_bytes * self.share)

    def __str__(self) -> str:
        return str(self.size_bytes) if self.share is None else f"{self.share:g}"
