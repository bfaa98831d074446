"""Which segments the collector copies together: a pure function of their sizes.

A segment's **payload** is all bytes behind its header, **valid** the bytes of live messages,
**garbage** the rest. Only sealed segments with valid bytes are considered (empty ones are unlinked), and
none that a snapshot pins or that a merge under way will remove.

Two reasons to merge:

* **Garbage** (RabbitMQ's rule, ``rabbit_msg_store:should_compact``): all together have more than two
  files' worth of payload and more than half of it is garbage. Then at least one of them is mostly
  garbage itself. The one with the most garbage per byte that must be copied is taken, with neighbours
  of its kind as long as all that is valid fits into one file: neighbours hold messages of the same
  time, which are read and die together.
* **Many small files**: each start of the broker begins a new segment, so a hundred crashes leave a
  hundred of them. Once there are ``small_files_max``, the eldest are merged, however little garbage they have.

Why it ends: a merged segment has no garbage, so the first kind makes the garbage less and the second the
files fewer, while the rest grows by nothing.

Turned down: always the eldest pair (RabbitMQ), which copies much to free little; merging in place, for
which readers have to be kept out.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from leveret.msg_store.format.file_header import HEADER_BYTES
from leveret.msg_store.memtable.file_states import FileState
from leveret.msg_store.wal.segment_writer import FILE_BYTES

_SMALL_SHARE: Final = 8  # a file is small below this part of the limit


@dataclass(frozen=True, slots=True)
class ChoiceLimits:
    """When segments are merged, and how many at once."""

    file_bytes: int = FILE_BYTES  # a segment's length when it is full
    sources_max: int = 8  # how many files are merged into one because of their garbage
    small_files_max: int = 16  # how many small files may lie around
    small_sources_max: int = 64  # how many of them are merged into one
    files_before_garbage: int = 2  # garbage counts above so many files' worth
    garbage_share: float = 0.5  # segments are merged above it

    @property
    def small_bytes(self) -> int:
        """The payload below which a file is small."""
        return self.file_bytes // _SMALL_SHARE


_Candidate: TypeAlias = tuple[int, int, int]  # file_no, valid, payload
DEFAULT: Final = ChoiceLimits()


def choose(
    files: Mapping[int, FileState], taken: Container[int], limits: ChoiceLimits = DEFAULT
) -> list[int]:
    """Return the segments that should be merged next, ascending; none if all is well."""
    eligible = [
        (file_no, state.valid_bytes, state.size_bytes - HEADER_BYTES)
        for file_no, state in files.items()
        if state.is_sealed and state.valid_bytes > 0 and file_no not in taken
    ]
    return _most_wasteful(eligible, limits) or _small_ones(eligible, limits)


def dead(files: Mapping[int, FileState], taken: Container[int]) -> list[int]:
    """Return the segments in which nothing is needed, ascending."""
    return sorted(
        file_no
        for file_no, state in files.items()
        if state.is_sealed and state.valid_bytes == 0 and file_no not in taken
    )


def _most_wasteful(eligible: list[_Candidate], limits: ChoiceLimits) -> list[int]:
    payload = sum(each[2] for each in eligible)
    valid = sum(each[1] for each in eligible)
    live_share = 1 - limits.garbage_share
    is_little = payload <= limits.files_before_garbage * limits.file_bytes
    if is_little or valid >= payload * live_share:
        return []
    wasteful = sorted(each for each in eligible if each[1] < each[2] * live_share)
    best = min(range(len(wasteful)), key=lambda at: wasteful[at][1] / wasteful[at][2])
    return _with_neighbours(wasteful, best, limits)


def _with_neighbours(wasteful: list[_Candidate], best: int, limits: ChoiceLimits) -> list[int]:
    """Extend the choice by the neighbour with less to copy, as long as one fits."""
    low, high, room = best, best + 1, limits.file_bytes - wasteful[best][1]
    while high - low < limits.sources_max:
        beside = [at for at in (low - 1, high) if 0 <= at < len(wasteful)]
        fitting = [at for at in beside if wasteful[at][1] <= room]
        if not fitting:
            break
        at = min(fitting, key=lambda each: wasteful[each][1])
        low, high, room = min(low, at), max(high, at + 1), room - wasteful[at][1]
    return [each[0] for each in wasteful[low:high]]


def _small_ones(eligible: list[_Candidate], limits: ChoiceLimits) -> list[int]:
    small = [each for each in eligible if each[2] <= limits.small_bytes]
    if len(small) <= limits.small_files_max:
        return []
    chosen, room = [], limits.file_bytes
    for file_no, valid, _ in sorted(small)[: limits.small_sources_max]:
        room -= valid
        if room < 0:
            break
        chosen.append(file_no)
    return chosen
