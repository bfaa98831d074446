"""Delta: the part of a variable queue that is on disk only, but for its bounds.

A delta is a range of seqs whose entries are in the index on disk and nowhere else. It may have holes:
seqs that were acked, are unacked, or were never indexed lie inside it, so that its ``length`` is
at most ``end - start``. It is loaded back in *windows*, each at most ``read_max`` seqs long and within
one *segment* of the index, the most that one read of the index can return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from leveret.core.entry import PERSISTENT, SEQ

if TYPE_CHECKING:
    from leveret.core.entry import Entry


class Delta(NamedTuple):
    """The range ``[start, end)`` with ``length`` entries, ``transient`` of them transient."""

    start: int
    length: int
    transient: int
    end: int


BLANK: Final = Delta(0, 0, 0, 0)  # the only delta without entries, to be compared by identity


def next_boundary(seq: int, segment: int) -> int:
    """Return the first seq of the segment after that of ``seq``."""
    return (seq // segment + 1) * segment


def expand(delta: Delta, entries: list[Entry]) -> Delta:
    """Return the delta with these entries added, which are sorted by seq, up or down."""
    first, last = entries[0][SEQ], entries[-1][SEQ]
    if first > last:
        first, last = last, first
    count = len(entries)
    transient = count - sum([entry[PERSISTENT] for entry in entries])
    if delta is BLANK:
        return Delta(first, count, transient, last + 1)
    start = min(delta.start, first)
    end = max(delta.end, last + 1)
    return Delta(start, delta.length + count, delta.transient + transient, end)


def window_end(delta: Delta, segment: int, read_max: int) -> int:
    """Return where the window ends that starts at the delta's start."""
    return min(next_boundary(delta.start, segment), delta.start + read_max, delta.end)


def window_start(start: int, seq: int, segment: int, read_max: int) -> int:
    """Return the start of the window that holds ``seq``, when windows are laid from ``start`` on."""
    base = start if seq < next_boundary(start, segment) else seq // segment * segment
    return base + (seq - base) // read_max * read_max
