"""The store's kernel in pure Python; the contract is in ``leveret/msg_store/format/kernel.py``."""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from queue import SimpleQueue
from typing import Any, Final

from leveret.core.message import BODY, HEAD, Message
from leveret.msg_store.format.append_log import Step
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import extender
from leveret.msg_store.format.record import FLAGS, HEADER, HEADER_BYTES, MAGIC, Place, Want
from leveret.msg_store.format.rows import IndexRow, Location

Buffer = Any  # whatever has the buffer protocol; ``collections.abc.Buffer`` is Python 3.12's
PartsOf = Callable[[bytes], tuple[bytes, bytes]]
Outcome = tuple[int, int, int, object]

_LOCATION_KEY: Final = struct.Struct(">Q")
_LOCATION: Final = struct.Struct("<IIIII")
_ROW_KEY: Final = struct.Struct(">IQ")
_ROW: Final = struct.Struct("<QIQB")
_CRC_BYTES: Final = 4
_PIECE_BYTES: Final = 1 << 20  # a larger copy would take much memory
_ONE: Final = (1).to_bytes(8, sys.byteorder)

_entry_size_of: Final[Callable[[tuple[Any, ...]], int]] = itemgetter(5)


def runs(places: Sequence[Place], gap_bytes: int, join_bytes: int) -> list[tuple[int, int]] | None:
    """Say what can be read at once."""
    found: list[tuple[int, int]] = []
    file_no, before, first, start, end = -1, -1, 0, 0, 0
    for at, place in enumerate(places):
        number, offset, length = place[:3]
        if number != file_no or offset - end > gap_bytes or offset + length - start > join_bytes:
            if number < file_no:
                return None
            if number > file_no:
                before = -1
            if at:
                found.append((first, at))
            file_no, first, start = number, at, offset
        if offset < before:
            return None
        before, end = offset, offset + length
    if places:
        found.append((first, len(places)))
    return found


def checksums(data: Buffer, kind: int, seed: int, begins: Buffer, ends: Buffer) -> bytes:
    """Compute the checksums of many parts of a buffer."""
    extend, view = extender(kind), memoryview(data)
    offsets = memoryview(begins).cast("B").cast("q"), memoryview(ends).cast("B").cast("q")
    found = array("I")
    for begin, end in zip(*offsets, strict=True):
        if not 0 <= begin <= end <= len(view):
            raise ValueError(f"bytes {begin} to {end} of {len(view)}")
        crc = seed
        for at in range(begin, end, _PIECE_BYTES):
            crc = extend(crc, bytes(view[at : min(at + _PIECE_BYTES, end)]))
        found.append(crc)
    return found.tobytes()


def decode_run(
    data: bytes,
    start: int,
    msg_nos: Sequence[int],
    places: Sequence[Place],
    kind: int,
    seed: int,
    parts_of: PartsOf,
    messages: dict[int, Message],
) -> tuple[list[Want], int]:
    """Read records of which number and place are known."""
    extend, header, end_of_data = extender(kind), HEADER.unpack_from, len(data)
    others: list[Want] = []
    body_bytes, last_meta = 0, None
    for want in zip(msg_nos, places, strict=True):
        msg_no, place = want
        at, length = place[1] - start, place[2]
        end = at + length
        if length >= HEADER_BYTES and at >= 0 and end <= end_of_data:
            crc, total_len, found_no, _, meta_len, body_len, flags, magic = header(data, at)
            meta_at = at + HEADER_BYTES
            body_at = meta_at + meta_len
            if (
                extend(seed, data[at + _CRC_BYTES : end]) == crc
                and found_no == msg_no
                and total_len == length
                and body_at + body_len == end
                and magic == MAGIC
                and not flags & ~FLAGS
            ):
                meta = data[meta_at:body_at]
                if meta != last_meta:
                    try:
                        origin, head = parts_of(meta)
                    except Corrupt:
                        others.append(want)
                        continue
                    last_meta = meta
                messages[msg_no] = (origin, head, data[body_at:end])
                body_bytes += body_len
                continue
        others.append(want)
    return others, body_bytes


def locations(values: Sequence[bytes]) -> list[Location]:
    """Read the index's values of messages."""
    if any(map(_LOCATION.size.__ne__, map(len, values))):
        raise struct.error("a place in the index is not 20 bytes long")
    found: list[Location] = list(_LOCATION.iter_unpack(b"".join(values)))
    return found


def total(places: Sequence[Location]) -> tuple[int, int, dict[int, int]]:
    """Return reference counts, bodies, and by segment the bytes of records."""
    record_bytes: dict[int, int] = {}
    row_count = size_bytes = 0
    for file_no, _, length, size, count in places:
        row_count += count
        size_bytes += size
        record_bytes[file_no] = record_bytes.get(file_no, 0) + length
    return row_count, size_bytes, record_bytes


def rows(values: Sequence[bytes], first_seq: int) -> list[IndexRow]:
    """Read the index's values of rows at seqs in a row."""
    unpack = _ROW.unpack
    return [(seq, *unpack(value)) for seq, value in enumerate(values, first_seq)]


def entries(rows: Sequence[IndexRow], persistent: bool) -> list[tuple[Any, ...]]:
    """Make entries of a queue of rows."""
    return [
        (seq, None, expiry_ms, persistent, msg_no, size, True, True)
        for seq, msg_no, size, expiry_ms, _ in rows
    ]


def bytes_of(entries: Iterable[tuple[Any, ...]]) -> int:
    """Return the sizes of entries."""
    return sum(map(_entry_size_of, entries))


def row_items(queue_no: int, rows: Sequence[IndexRow]) -> list[tuple[bytes, bytes]]:
    """Make keys and values of rows."""
    key, value = _ROW_KEY.pack, _ROW.pack
    return [(key(queue_no, row[0]), value(*row[1:])) for row in rows]


def location_items(places: Sequence[tuple[int, Location | None]]) -> list[tuple[bytes, bytes]]:
    """Make keys and values of the messages that have a place."""
    key, value = _LOCATION_KEY.pack, _LOCATION.pack
    return [(key(msg_no), value(*at)) for msg_no, at in places if at is not None]


def take(contents: dict[int, Message], keys: list[int]) -> tuple[list[Message], int]:
    """Take messages out, up to the first that is not there."""
    found = list(map(contents.get, keys))
    taken: list[Message] = found if None not in found else found[: found.index(None)]  # type: ignore[assignment]
    for _ in map(contents.pop, keys[: len(taken)], repeat(None)):
        pass
    return taken, size_of(taken)


def size_of(messages: Iterable[Message]) -> int:
    """Return the bytes of heads and bodies."""
    return sum([len(message[HEAD]) + len(message[BODY]) for message in messages])


class Notifier:
    """Wakes a loop, by a descriptor that it polls, when all work that was expected is done."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = 0
        self._lock = threading.Lock()

    def expect(self, count: int) -> None:
        self._left = count

    def done(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            os.write(self._descriptor, _ONE)


class Caller:
    """Makes system calls on a thread."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._inbox: SimpleQueue[Callable[[], Outcome] | None] = SimpleQueue()
        self._outcome: Outcome | None = None
        self._is_awaited = self._is_closed = False

    def submit(self, steps: Sequence[Step]) -> None:
        self._submit(lambda: _made(steps))

    def submit_call(self, work: Callable[[], object]) -> None:
        self._submit(lambda: (0, 0, 0, work()))

    def _submit(self, work: Callable[[], Outcome]) -> None:
        if self._is_awaited or self._is_closed:
            raise RuntimeError(
                "work was submitted before the last outcome was taken, or after the end"
            )
        self._is_awaited = True
        self._inbox.put(work)

    def take_outcome(self) -> Outcome | None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None:
            self._is_awaited = False
        return outcome

    def close(self) -> None:
        self._is_closed = True
        self._inbox.put(None)

    def run(self) -> None:
        while (work := self._inbox.get()) is not None:
            self._outcome = work()
            del work  # or the last one would be kept while there is none
            self._notifier.done()


def _made(steps: Sequence[Step]) -> Outcome:
    sync_ns = 0
    for count, (descriptor, data, offset) in enumerate(steps):
        try:
            if data is None:
                began_ns = time.monotonic_ns()
                os.fdatasync(descriptor)
                sync_ns += time.monotonic_ns() - began_ns
            else:
                _write(descriptor, data, offset)
        except OSError as error:
            return count, error.errno or errno.EIO, sync_ns, None
    return len(steps), 0, sync_ns, None


def _write(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        if offset < 0:
            written = os.write(descriptor, rest)
        else:
            written = os.pwrite(descriptor, rest, offset)
            offset += written
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]
