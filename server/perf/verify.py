"""Verification: every message arrives once, in order, unchanged.

Messages travel in *lanes*: a lane is one publishing channel towards one set of queues, with messages
numbered from 0. The body contains lane and number::

    lane:u16 number:u32 sent_ns:u64 filler check:u16      16 bytes at least

``sent_ns`` is the time the message was due. ``filler`` is a fixed text and ``check`` a checksum of the
first fields, so a truncated, mixed up or overwritten body is detected.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Final
from zlib import crc32

BODY_BYTES_MIN: Final = 16
LANES_MAX: Final = 65_536
HEAD: Final = struct.Struct(">HIQ")
CHECK: Final = struct.Struct(">H")
VIOLATIONS_KEPT: Final = 20

_PATTERN: Final = bytes((7 * i * i + 13 * i) % 251 for i in range(997))
_fillers: dict[int, bytes] = {}


def filler(body_bytes: int) -> bytes:
    """Return the filler of bodies of one size."""
    found = _fillers.get(body_bytes)
    if found is None:
        size = body_bytes - BODY_BYTES_MIN
        found = _fillers[body_bytes] = (_PATTERN * (size // len(_PATTERN) + 1))[:size]
    return found


class Violations:
    """Violations counted by kind, with the first few texts."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.texts: list[str] = []

    def add(self, kind: str, text: str, count: int = 1) -> None:
        self.counts[kind] += count
        if len(self.texts) < VIOLATIONS_KEPT:
            self.texts.append(f"{kind}: {text}")

    def __bool__(self) -> bool:
        return bool(self.counts)


class LaneReader:
    """The progress of all consumers of a queue through one lane."""

    __slots__ = ("ahead", "next")

    def __init__(self) -> None:
        self.next = 0
        self.ahead: set[int] = set()

    def take(self, number: int) -> bool:
        """Note a number; return False if it is a duplicate."""
        if number == self.next:
            self.next += 1
            while self.ahead and self.next in self.ahead:
                self.ahead.remove(self.next)
                self.next += 1
            return True
        if number < self.next or number in self.ahead:
            return False
        self.ahead.add(number)
        return True

    @property
    def count(self) -> int:
        return self.next + len(self.ahead)


class QueueLedger:
    """The messages received from one queue."""

    def __init__(self, name: str, violations: Violations) -> None:
        self.name = name
        self.lanes: defaultdict[int, LaneReader] = defaultdict(LaneReader)
        self.received = 0
        self._violations = violations

    def take(self, lane: int, number: int) -> None:
        self.received += 1
        if not self.lanes[lane].take(number):
            self._violations.add(
                "duplicate", f"queue {self.name} lane {lane} message {number} came twice"
            )

    def settle(self, sent: dict[int, int]) -> None:
        """Compare with the number sent on each lane to this queue."""
        for lane, count in sent.items():
            missing = count - self.lanes[lane].count
            if missing:
                self._violations.add(
                    "lost", f"queue {self.name} lane {lane} misses {missing} of {count}", missing
                )


class ConsumerCheck:
    """The checks of one consumer: bodies are intact, and numbers grow within a lane.

    Redelivered messages are counted separately; only their body is checked.
    """

    def __init__(self, ledger: QueueLedger, violations: Violations) -> None:
        self.ledger = ledger
        self.received = 0
        self.redelivered = 0
        self._last: dict[int, int] = {}
        self._violations = violations

    def take(self, received: bytes, is_redelivered: bool) -> int:
        """Check one message; return when it was due, in ns, or -1 if the body is foreign."""
        size = len(received)
        if size < BODY_BYTES_MIN:
            return self._bad(f"a body of {size} bytes")
        lane, number, sent_ns = HEAD.unpack_from(received)
        if CHECK.unpack_from(received, size - 2)[0] != crc32(
            received[:14]
        ) & 0xFFFF or not received.startswith(filler(size), 14):
            return self._bad(
                f"body of lane {lane} message {number} differs from the body that was sent"
            )
        self.received += 1
        if is_redelivered:
            self.redelivered += 1
            return int(sent_ns)
        if number <= self._last.get(lane, -1):
            text = f"queue {self.ledger.name} lane {lane}: {number} after {self._last[lane]}"
            self._violations.add("order", text)
        self._last[lane] = number
        self.ledger.take(lane, number)
        return int(sent_ns)

    def _bad(self, text: str) -> int:
        self.received += 1
        self._violations.add("body", text)
        return -1
