"""What the processes of a flood know together: memory that all of them have mapped.

Each number and each byte has one writer. Two arrays are kept for each publisher, with one byte for each
of its messages: what its publisher learned about it, and what the consumers did. The consumers of a queue
write to the same array, but a message is with one of them at a time; ``Flood.check`` counts whether so.
"""

from __future__ import annotations

import mmap
from pathlib import Path

PUBLISHERS = 2
CONSUMERS = 2
QUEUES = 50

CONFIRMED = 1
SEEN, ACKED = 1, 3  # ACKED: the broker had the ack so long ago that it has to be on the disk

# Numbers of the whole.
IS_ENOUGH, IS_OVER = range(2)
# Numbers of one process, publishers first.
LIVES, IS_READY, SENT, SETTLED, OUTSTANDING, COUNT, CPU_NS = range(7)  # SETTLED: all below it

_FIRST, _EACH, _NUMBER_BYTES = 8, 8, 8
_HEAD_BYTES = _NUMBER_BYTES * (_FIRST + _EACH * (PUBLISHERS + CONSUMERS))


class Board:
    """One board; the first process that opens it creates it.

    Args:
        path: the file that is mapped.
        capacity: how many messages one publisher may publish.

    Attributes:
        numbers: of the whole, and then of each process.
        confirmed: what publishers know of their messages, one publisher's behind the other's.
        seen: what consumers know of them, in the same order.
    """

    def __init__(self, path: Path, capacity: int) -> None:
        self.capacity = capacity
        everything = PUBLISHERS * capacity
        with path.open("a+b") as file:
            file.truncate(_HEAD_BYTES + 2 * everything)
            mapped = memoryview(mmap.mmap(file.fileno(), 0))
        self.numbers = mapped[:_HEAD_BYTES].cast("Q")
        self.confirmed = mapped[_HEAD_BYTES : _HEAD_BYTES + everything]
        self.seen = mapped[_HEAD_BYTES + everything :]

    def of(self, process: int) -> memoryview:
        """Return the numbers of one process."""
        first = _FIRST + _EACH * process
        return self.numbers[first : first + _EACH]

    def messages_of(self, publisher: int) -> slice:
        """Return where the messages are that one publisher has published so far."""
        first = publisher * self.capacity
        return slice(first, first + self.of(publisher)[SENT])

    def total(self, number: int, processes: range) -> int:
        return sum(self.of(process)[number] for process in processes)


PUBLISHER_NOS = range(PUBLISHERS)
CONSUMER_NOS = range(PUBLISHERS, PUBLISHERS + CONSUMERS)


def queues_of(publisher: int) -> range:
    """Return the queues that a publisher's messages go to in turn."""
    return range(publisher, QUEUES, PUBLISHERS)
