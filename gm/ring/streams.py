"""What a member knows of one publisher's publications."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.gm.records.group import GmError, MemberId
from leveret.gm.ring.frames import BODY_OVERHEAD_BYTES, Entry, weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.gm.ring.frames import Body


class GapError(GmError):
    """Publications are missing before those that arrived; a defect of the ring or of a link."""


class Stream:
    """The publications of one publisher that have not been round, as far as this member knows.

    Attributes:
        last: number of the last publication that came; -1: none.
        acked: all up to this number have been round; ``last - acked`` are kept.
        size_bytes: of the kept publications (``frames.weight``).
        unsent_bytes: what the last ones count for that the right neighbour has not been sent.
    """

    __slots__ = ("_kept", "_unsent", "acked", "last", "publisher", "size_bytes", "unsent_bytes")

    def __init__(self, publisher: MemberId) -> None:
        self.publisher = publisher
        self.last = -1
        self.acked = -1
        self.size_bytes = self.unsent_bytes = 0
        self._kept: deque[Body] = deque()
        self._unsent: list[Body] = []

    @property
    def is_empty(self) -> bool:
        """Whether all have been round."""
        return not self._kept

    def start(self, first: int, bodies: list[Body], acked: int) -> None:
        """Begin with another member's state.

        Raises:
            GapError: the state lacks publications.
        """
        if first != acked + 1:
            raise GapError(
                f"state of {self.publisher} begins with {first}, but only {acked} were acknowledged"
            )
        self.last = self.acked = acked
        self.add(first, bodies)

    def add(self, first: int, bodies: list[Body]) -> list[Body]:
        """Keep publications; return the new ones.

        Raises:
            GapError: publications before ``first`` have not come.
        """
        known = self.last + 1 - first
        if known < 0:
            raise GapError(f"publication {first} of {self.publisher} came after {self.last}")
        new = bodies[known:] if known else bodies
        size = weight(new)
        self._kept += new
        self._unsent += new
        self.last += len(new)
        self.size_bytes += size
        self.unsent_bytes += size
        return new

    def take_unsent(self) -> tuple[int, list[Body]]:
        """Return the publications that the right neighbour has not been sent, and the number of the first."""
        unsent, self._unsent, self.unsent_bytes = self._unsent, [], 0
        return self.last + 1 - len(unsent), unsent

    def ack(self, number: int) -> bool:
        """Drop publications up to ``number``, which have been round; return whether that is news.

        Raises:
            GapError: some of them have not come.
        """
        count = number - self.acked
        if count <= 0:
            return False
        if number > self.last:
            raise GapError(
                f"publication {number} of {self.publisher} was acknowledged, but only {self.last} came"
            )
        popleft = self._kept.popleft
        self.size_bytes -= weight([popleft() for _ in range(count)])
        self.acked = number
        return True

    def chunks(self, size_max: int) -> Iterator[Entry]:
        """Yield entries of the kept publications, with about so many bytes in each; at least one entry."""
        bodies = list(self._kept)
        for begin, end in runs(bodies, size_max):
            yield Entry(self.publisher, self.acked + 1 + begin, bodies[begin:end], self.acked)


def state_in_parts(
    streams: list[Stream], receiver: MemberId, size_max: int
) -> Iterator[list[Entry]]:
    """Yield a catch-up in parts of about ``size_max`` bytes; without bodies of the receiver's own, which it knows."""
    entries: list[Entry] = []
    for stream in streams:
        if stream.publisher == receiver:
            entries.append(Entry(receiver, stream.last + 1, [], stream.acked))
        else:
            entries += stream.chunks(size_max)
    return in_parts(entries, size_max)


def in_parts(entries: list[Entry], size_max: int) -> Iterator[list[Entry]]:
    """Yield entries for one frame after the other, of about ``size_max`` bytes each."""
    if len(entries) == 1:
        yield entries
        return
    part: list[Entry] = []
    size = 0
    for entry in entries:
        more = weight(entry.bodies)
        if part and size + more > size_max:
            yield part
            part, size = [], 0
        part.append(entry)
        size += more
    if part:
        yield part


def runs(bodies: list[Body], size_max: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of runs of bodies that go into one frame each; at least one, though it be empty."""
    begin, size = 0, 0
    for at, body in enumerate(bodies):
        more = BODY_OVERHEAD_BYTES + (0 if body is None else len(body))
        if at > begin and size + more > size_max:
            yield begin, at
            begin, size = at, 0
        size += more
    yield begin, len(bodies)
