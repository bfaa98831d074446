"""Counts of stored messages: by queue and routing key, by size, by the minute they were taken in, by reason of death.

Sizes are counted in buckets: one for each size below 16, then 16 for each power of two, so a quantile is at most 1/16
too high. Queues have their own buckets; minutes and routing keys are counted over all queues, with a ceiling for keys.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leveret.spark.jobs.stats.arrivals import Arrivals
from leveret.spark.scan.gather import Numbers

COLUMNS: Final = (
    "vhost", "queue", "routing_key", "body_size", "enqueued_at", "expires_at", "persistent", "x_death",
)  # fmt: skip
MINUTE_MS: Final = 60_000
_EXACT: Final = 16  # sizes below have a bucket each; and so many for each power of two
_BITS: Final = 4
_KEYS_MAX: Final = 100_000
_TIMES: Final = ("vhost", "queue", "time_list")
_OTHERS: Final = ("(others)", "(others)", "(others)")


class QueueCounts:
    """The messages of a queue.

    Attributes:
        with_ttl: how many have an expiration.
        first_ms, last_ms: when the oldest and the newest were taken in; 0 without messages.
        arrivals: when all were taken in.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.persistent = 0
        self.with_ttl = 0
        self.first_ms = 0
        self.last_ms = 0
        self.size_max = 0
        self.sizes: Counter[int] = Counter()
        self.arrivals = Arrivals()

    def merge(self, other: QueueCounts) -> None:
        self.messages += other.messages
        self.body_bytes += other.body_bytes
        self.persistent += other.persistent
        self.with_ttl += other.with_ttl
        self.first_ms = min(self.first_ms or other.first_ms, other.first_ms or self.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        self.size_max = max(self.size_max, other.size_max)
        self.sizes.update(other.sizes)
        self.arrivals.merge(other.arrivals)

    def size_at(self, share: float) -> int:
        """Return the size that this share of the messages does not exceed; at most 1/16 too high."""
        left = share * self.messages
        for bucket in sorted(self.sizes):
            left -= self.sizes[bucket]
            if left <= 0:
                return min(highest_of(bucket), self.size_max)
        return self.size_max


class MessageCounts:
    """Counts record batches with ``COLUMNS``; parts are counted apart and merged.

    Attributes:
        queues: by vhost and queue.
        keys: messages and bytes by vhost, queue and routing key.
        minutes: messages by the minute since 1970 in which they were taken in.
        reasons: messages by the reason of their latest death.
    """

    def __init__(self) -> None:
        self.queues: dict[tuple[str, str], QueueCounts] = {}
        self.keys: dict[tuple[str, str, str], list[int]] = {}
        self.minutes: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()

    def add(self, batch: Any) -> None:
        times = batch.column("enqueued_at").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        sizes = batch.column("body_size").to_numpy()
        table = pa.table(
            {
                "vhost": batch.column("vhost"),
                "queue": batch.column("queue"),
                "key": pc.fill_null(batch.column("routing_key"), ""),
                "size": batch.column("body_size"),
                "bucket": pa.array(buckets_of(sizes)),
                "time": times,
                "persistent": batch.column("persistent").cast(pa.int64()),
                "ttl": pc.is_valid(batch.column("expires_at")).cast(pa.int64()),
            }
        )
        self._add_queues(table)
        by_key = table.group_by(["vhost", "queue", "key"])
        for row in by_key.aggregate([("size", "count"), ("size", "sum")]).to_pylist():
            place = row["vhost"], row["queue"], row["key"]
            self._count_key(place, row["size_count"], row["size_sum"])
        known = times.drop_null().to_numpy()
        minutes, counts = np.unique(known // MINUTE_MS, return_counts=True)
        for minute, count in zip(minutes, counts, strict=True):
            self.minutes[int(minute)] += int(count)
        self._add_deaths(batch.column("x_death"))

    def _add_queues(self, table: Any) -> None:
        by_queue = table.group_by(["vhost", "queue"])
        sums = [("size", "count"), ("persistent", "sum"), ("ttl", "sum")]
        bounds = [("size", "sum"), ("size", "max"), ("time", "min"), ("time", "max")]
        for row in by_queue.aggregate([*sums, *bounds]).to_pylist():
            found = QueueCounts()
            found.messages, found.body_bytes = row["size_count"], row["size_sum"]
            found.persistent, found.with_ttl = row["persistent_sum"] or 0, row["ttl_sum"] or 0
            found.first_ms, found.last_ms = row["time_min"] or 0, row["time_max"] or 0
            found.size_max = row["size_max"]
            self._queue(row["vhost"], row["queue"]).merge(found)
        by_bucket = table.group_by(["vhost", "queue", "bucket"])
        for row in by_bucket.aggregate([("size", "count")]).to_pylist():
            self._queue(row["vhost"], row["queue"]).sizes[row["bucket"]] += row["size_count"]
        known = table.filter(pc.is_valid(table.column("time")))
        times = known.group_by(["vhost", "queue"]).aggregate([("time", "list")]).combine_chunks()
        for vhost, queue, found_ms in zip(*(times.column(name) for name in _TIMES), strict=True):
            arrivals = self._queue(vhost.as_py(), queue.as_py()).arrivals
            arrivals.add(found_ms.values.to_numpy())

    def _add_deaths(self, deaths: Any) -> None:
        dead = deaths.filter(pc.greater(pc.list_value_length(deaths), 0))
        if len(dead):
            reasons = pc.struct_field(pc.list_element(dead, 0), "reason")
            for row in pc.value_counts(pc.fill_null(reasons, "")).to_pylist():
                self.reasons[row["values"]] += row["counts"]

    def pack(self) -> bytes:
        fields = {
            "queues": [
                [*name, vars(queue) | {"arrivals": queue.arrivals.pack()}]
                for name, queue in self.queues.items()
            ],
            "keys": [[*place, *counts] for place, counts in self.keys.items()],
            "minutes": self.minutes,
            "reasons": self.reasons,
        }
        return json.dumps(fields).encode()

    def merge(self, packed: bytes) -> None:
        """Add what another part of the job has counted and packed."""
        fields = json.loads(packed)
        for vhost, queue, values in fields["queues"]:
            part = QueueCounts()
            values["sizes"] = Counter({int(size): count for size, count in values["sizes"].items()})
            vars(part).update(values | {"arrivals": Arrivals.unpack(values["arrivals"])})
            self._queue(vhost, queue).merge(part)
        for vhost, queue, key, messages, size_bytes in fields["keys"]:
            self._count_key((vhost, queue, key), messages, size_bytes)
        self.minutes.update({int(minute): count for minute, count in fields["minutes"].items()})
        self.reasons.update(fields["reasons"])

    @property
    def whole(self) -> QueueCounts:
        """The messages of all queues."""
        found = QueueCounts()
        for queue in self.queues.values():
            found.merge(queue)
        return found

    def _queue(self, vhost: str, queue: str) -> QueueCounts:
        return self.queues.setdefault((vhost, queue), QueueCounts())

    def _count_key(self, place: tuple[str, str, str], messages: int, size_bytes: int) -> None:
        known = place in self.keys or len(self.keys) < _KEYS_MAX
        counts = self.keys.setdefault(place if known else _OTHERS, [0, 0])
        counts[0] += messages
        counts[1] += size_bytes


def buckets_of(sizes: Numbers) -> Numbers:
    """Return the number of each size's bucket."""
    exponent = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1] - 1  # 2**exponent <= size
    shift = np.maximum(exponent - _BITS, 0)
    buckets: Numbers = np.where(sizes < _EXACT, sizes, shift * _EXACT + (sizes >> shift))
    return buckets


def highest_of(bucket: int) -> int:
    """Return the largest size in a bucket."""
    if bucket < _EXACT:
        return bucket
    shift, place = bucket // _EXACT - 1, bucket % _EXACT + _EXACT
    return ((place + 1) << shift) - 1
