"""What became of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(slots=True)
class Report:
    """Counts of a partition, or of a job.

    Each row is counted once in ``sent``, ``skipped``, ``dead_lettered`` or ``dropped``. ``returned`` and ``nacked``
    count events: one row may be nacked several times and then be sent.

    Attributes:
        sent: confirmed, and not returned.
        skipped: not sent, because the ledger says that they are settled.
        returned: basic.return: no queue took the message.
        nacked: basic.nack: the broker refused the message.
        dead_lettered: given to the dead-letter exchange or a reject file.
        dropped: returned under ``onUnroutable=drop``.
        seconds: of a job, those of its slowest partition.
    """

    sent: int = 0
    skipped: int = 0
    returned: int = 0
    nacked: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.as_dict().items())


def total(reports: Iterable[Report]) -> Report:
    """Return the report of a job from those of its partitions."""
    found = Report()
    for report in reports:
        for each in fields(Report):
            before, value = getattr(found, each.name), getattr(report, each.name)
            both = max(before, value) if each.name == "seconds" else before + value
            setattr(found, each.name, both)
    return found
