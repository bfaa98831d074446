"""The destinations of a replay, counted without publishing: a dry run."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from leveret.spark.jobs.report import JobReport
from leveret.spark.publish.identity import Key

ASSUMED_PER_S: Final = 20_000  # of one publisher, where no rate is given
_SHOWN: Final = 50
_NAMED: Final = 20
_COUNTED: Final = 100_000  # destinations that are counted one by one


class Destinations:
    """Counts messages by exchange and routing key.

    Attributes:
        left_out: messages that have none; some of them are ``named``.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.left_out = 0
        self.named: list[Key] = []
        self._found: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, batch: Any) -> None:
        """Count a record batch with ``exchange``, ``routing_key`` and ``body_size``."""
        if not batch.num_rows:
            return
        by_name = ["exchange", "routing_key"]
        table = pa.Table.from_batches([batch]).select([*by_name, "body_size"])
        sums = table.group_by(by_name).aggregate([("body_size", "count"), ("body_size", "sum")])
        for row in sums.to_pylist():
            counts = row["body_size_count"], row["body_size_sum"]
            self.count(row["exchange"], row["routing_key"], *counts)

    def merge(self, packed: bytes) -> None:
        """Add what another part of the job has counted and packed."""
        fields = json.loads(packed)
        self.leave_out(fields["left_out"], [Key(*each) for each in fields["named"]])
        for exchange, routing_key, messages, size_bytes in fields["found"]:
            self.count(exchange, routing_key, messages, size_bytes)

    def pack(self) -> bytes:
        found = [[*place, *counts] for place, counts in self._found.items()]
        fields = {"left_out": self.left_out, "named": self.named, "found": found}
        return json.dumps(fields).encode()

    def write_to(self, report: JobReport, publishers: int, per_s: float) -> None:
        """Write the counts into a report, and how long the replay would take.

        Args:
            report: the report.
            publishers: connections.
            per_s: the rate of all of them; 0: none was given, which the report mentions.
        """
        if not per_s and self.messages:
            report.warn(f"duration_s assumes {ASSUMED_PER_S:,} messages/s of each publisher")
        duration_s = self.messages / (per_s or ASSUMED_PER_S * publishers)
        report.counts |= {"selected": self.messages, "body_bytes": self.body_bytes}
        report.counts |= {"left_out": self.left_out, "duration_s": round(duration_s, 1)}
        first = sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))
        report.counts["destinations"] = len(first)
        report.details["destinations"] = [
            {"exchange": place[0], "routing_key": place[1], "messages": counts[0], "body_bytes": counts[1]}
            for place, counts in first[:_SHOWN]
        ]  # fmt: skip
        mention_left_out(report, self.left_out, self.named)

    def count(self, exchange: str, routing_key: str, messages: int, size_bytes: int) -> None:
        """Count messages of one destination."""
        self.messages += messages
        self.body_bytes += size_bytes
        place = exchange, routing_key
        if place in self._found or len(self._found) < _COUNTED:
            before = self._found.get(place, (0, 0))
            self._found[place] = before[0] + messages, before[1] + size_bytes

    def leave_out(self, count: int, keys: list[Key]) -> None:
        """Count messages that go nowhere."""
        self.left_out += count
        self.named += keys[: _NAMED - len(self.named)]


def mention_left_out(report: JobReport, count: int, keys: list[Key]) -> None:
    """Say how many dead letters have no origin, and name some."""
    if count:
        report.is_complete = False
        report.warn(
            f"{count} messages have no x-death that names exchange and routing key, and are left out"
        )
        report.details["left_out"] = [key._asdict() for key in keys[:_NAMED]]
