"""Journal records: publishes, acks, and moves of messages.

Little endian. A record is never split, has no length of its own, and counts as one number of the
log (LSN), however many messages it names: one record per message would cost more than all else.

=====  ======  ===================================================================================
type   name    layout
=====  ======  ===================================================================================
1      PUB     ``type flags:u8 queue_no:u32 seq:u64 msg_no:u64 file:u32 offset:u32 total_len:u32
               body_size:u32 expiry_ms:u64``
2      CARRY   ``type file:u32 offset:u32 count:u32``, then ``count`` bytes: whole records of that
               segment, inline because it was not synced with this frame
3      ACK     ``type queue_no:u32 seq:u64``
4      ACKR    ``type queue_no:u32 first:u64 last:u64``; the seqs between that exist
5      MOVE    ``type msg_no:u64 file:u32 offset:u32 total_len:u32``; the collector's
9      PUBS    ``type flags:u8 queue_no:u32 first_seq:u64 file:u32 count:u16 first_msg_no:u64``,
               then ``count`` each of: ``msg_no:u64`` (only with flag 4: the numbers do not follow
               each other), ``offset:u32``, ``total_len:u32``, ``body_size:u32``, ``expiry_ms:u64``
               (only with flag 8)
10     ACKS    ``type queue_no:u32 count:u16``, then ``count`` times ``seq:u64``
12     PSEQ    ``type levels:u8 queue_no:u32 epoch:u64 used_ms:u64 count:u16 id_len:u8``, the producer's
               id, then ``count`` times the ``seq:u64`` of a row of this frame (or an earlier one), and
               ``count`` times the sequence ``u64`` that came with it; count 0: the producer is forgotten.
               The rows are under the numbers ``queue_no`` to ``queue_no + levels - 1``
=====  ======  ===================================================================================

Flags of PUB and PUBS: 1 persistent, 2 delivered before. ``expiry_ms`` 0 is never.

Reserved: 6, 7, 8 (queues made, deleted, closed; metadata and index have them),
11 delivery counts, 13 acked but retained. A frame with
one of them was written by a newer version and is refused as a whole.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.rows import IndexRow, Location

PUB: Final = 1
CARRY: Final = 2
ACK: Final = 3
ACKR: Final = 4
MOVE: Final = 5
PUBS: Final = 9
ACKS: Final = 10
PSEQ: Final = 12
RESERVED: Final = frozenset({6, 7, 8, 11, 13})

PERSISTENT: Final = 1
DELIVERED: Final = 2
_MSG_NO_LIST: Final = 4
_EXPIRIES: Final = 8

COUNT_MAX: Final = 0xFFFF
_ACK_RUN_MIN: Final = 3  # shorter runs are cheaper in an ACKS

_PUB: Final = struct.Struct("<BBIQQIIIIQ")
_CARRY: Final = struct.Struct("<BIII")
_ACK: Final = struct.Struct("<BIQ")
_ACKR: Final = struct.Struct("<BIQQ")
_MOVE: Final = struct.Struct("<BQIII")
_PUBS: Final = struct.Struct("<BBIQIHQ")
_ACKS: Final = struct.Struct("<BIH")
_PSEQ: Final = struct.Struct("<BBIQQHB")
_PAIR: Final = struct.Struct("<QQ")  # a row and its sequence
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"


@dataclass(frozen=True, slots=True)
class Publishes:
    """Messages with seqs in a row in one queue and bodies in one file; the lists are parallel."""

    queue_no: int
    first_seq: int
    flags: int
    file_no: int
    msg_nos: Sequence[int]
    offsets: Sequence[int]
    lengths: Sequence[int]
    body_sizes: Sequence[int]
    expiries_ms: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class Acks:
    """Acked seqs of a queue."""

    queue_no: int
    seqs: Sequence[int]


@dataclass(frozen=True, slots=True)
class AckRange:
    """All seqs of a queue from ``first`` to ``last`` are acked, with a row or without."""

    queue_no: int
    first: int
    last: int


@dataclass(slots=True)
class ProducerSeqs:
    """Sequences of one producer, rising, and the rows they came with; without any it is forgotten.

    A flush makes a thousand, so it is not frozen: that is four times as slow to make.
    """

    queue_no: int
    levels: int  # numbers under which the queue has its rows, one for each priority
    producer: bytes
    epoch: int
    used_ms: int
    row_seqs: Sequence[int]
    seqs: Sequence[int]


@dataclass(frozen=True, slots=True)
class Move:
    """A message's record lies elsewhere now."""

    msg_no: int
    file_no: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RedoRecord:
    """The bytes of a segment from ``offset`` on."""

    file_no: int
    offset: int
    data: bytes


JournalRecord: TypeAlias = Publishes | Acks | AckRange | Move | RedoRecord | ProducerSeqs


def encode_redo(file_no: int, offset: int, data: bytes) -> bytes:
    """Return the redo record: the bytes of messages inline in a frame."""
    return _CARRY.pack(CARRY, file_no, offset, len(data)) + data


def encode_publish(queue_no: int, row: IndexRow, place: Location) -> bytes:
    """Return the record of one message, which lies at a place."""
    seq, msg_no, size, expiry_ms, flags = row
    file_no, at, length, _, _ = place
    return _PUB.pack(PUB, flags, queue_no, seq, msg_no, file_no, at, length, size, expiry_ms)


def encode_publishes(run: Publishes) -> bytes:
    """Return the record of a run, at most ``COUNT_MAX`` messages long."""
    count, msg_nos = len(run.msg_nos), run.msg_nos
    if count == 1:
        expiry_ms, size = run.expiries_ms[0] if run.expiries_ms else 0, run.body_sizes[0]
        row = run.first_seq, msg_nos[0], size, expiry_ms, run.flags
        place = run.file_no, run.offsets[0], run.lengths[0], size, 1
        return encode_publish(run.queue_no, row, place)
    first, flags = msg_nos[0], run.flags
    follow = msg_nos[-1] - first == count - 1 and list(msg_nos) == list(range(first, first + count))
    if not follow:
        flags |= _MSG_NO_LIST
    if run.expiries_ms:
        flags |= _EXPIRIES
    head = _PUBS.pack(PUBS, flags, run.queue_no, run.first_seq, run.file_no, count, first)
    numbers = b"" if follow else _array("Q", msg_nos)
    columns = _array("I", [*run.offsets, *run.lengths, *run.body_sizes])
    expiries = _array("Q", run.expiries_ms) if run.expiries_ms else b""
    return b"".join((head, numbers, columns, expiries))


def encode_acks(queue_no: int, seqs: list[int]) -> list[bytes]:
    """Return the records of acked seqs, given ascending and each once."""
    if seqs[-1] - seqs[0] == len(seqs) - 1:
        return [encode_ack_run(queue_no, seqs[0], seqs[-1])]
    records, scattered, first = [], array("Q"), 0
    for index in range(1, len(seqs) + 1):
        if index < len(seqs) and seqs[index] == seqs[index - 1] + 1:
            continue
        if index - first >= _ACK_RUN_MIN:
            records.append(encode_ack_run(queue_no, seqs[first], seqs[index - 1]))
        else:
            scattered.extend(seqs[first:index])
        first = index
    for start in range(0, len(scattered), COUNT_MAX):
        some = scattered[start : start + COUNT_MAX]
        records.append(_ACKS.pack(ACKS, queue_no, len(some)) + _little(some))
    return records


def encode_ack_run(queue_no: int, first: int, last: int) -> bytes:
    """Return the record that acks those seqs from first to last that exist."""
    if first == last:
        return _ACK.pack(ACK, queue_no, first)
    return _ACKR.pack(ACKR, queue_no, first, last)


def encode_producer(record: ProducerSeqs) -> bytes:
    """Return the record of a producer's sequences, at most ``COUNT_MAX``."""
    row_seqs, seqs, producer = record.row_seqs, record.seqs, record.producer
    head = _PSEQ.pack(
        PSEQ,
        record.levels,
        record.queue_no,
        record.epoch,
        record.used_ms,
        len(seqs),
        len(producer),
    )
    if len(seqs) == 1:
        return head + producer + _PAIR.pack(row_seqs[0], seqs[0])
    return b"".join((head, producer, _array("Q", [*row_seqs, *seqs])))


def encode_move(move: Move) -> bytes:
    """Return the record of a message that the collector has copied."""
    return _MOVE.pack(MOVE, move.msg_no, move.file_no, move.offset, move.length)


def _array(code: str, values: Sequence[int]) -> bytes:
    return _little(array(code, values))


def _little(values: array[int]) -> bytes:
    if _IS_BIG_ENDIAN:
        values = values[:]
        values.byteswap()
    return values.tobytes()


def decode_records(payload: bytes, count: int) -> Iterator[JournalRecord]:
    """Yield the ``count`` records that fill a frame's payload; ``Corrupt`` for more, fewer, or unknown ones."""
    offset = 0
    for _ in range(count):
        if offset >= len(payload):
            raise Corrupt(f"frame of {count} records has fewer")
        decode = _DECODERS.get(payload[offset])
        if decode is None:
            kind = payload[offset]
            state = "reserved" if kind in RESERVED else "unknown"
            raise Corrupt(f"journal record of type {kind}, which is {state}")
        try:
            record, offset = decode(payload, offset)
        except struct.error as error:
            raise Corrupt(f"journal record is cut off: {error}") from error
        yield record
    if offset != len(payload):
        raise Corrupt(f"frame of {count} records has {len(payload) - offset} bytes too many")


def _column(payload: bytes, offset: int, code: str, count: int) -> tuple[array[int], int]:
    column = array(code)
    end = offset + count * column.itemsize
    if end > len(payload):
        raise Corrupt(f"journal record is cut off in a list of {count} numbers")
    column.frombytes(payload[offset:end])
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column, end


def _decode_pub(payload: bytes, offset: int) -> tuple[Publishes, int]:
    _, flags, queue_no, seq, msg_no, file_no, at, length, size, expiry_ms = _PUB.unpack_from(
        payload, offset
    )
    if flags & ~(PERSISTENT | DELIVERED):
        raise Corrupt(f"PUB with flags {flags:#x}")
    expiries = (expiry_ms,) if expiry_ms else None
    run = Publishes(queue_no, seq, flags, file_no, (msg_no,), (at,), (length,), (size,), expiries)
    return run, offset + _PUB.size


def _decode_pubs(payload: bytes, offset: int) -> tuple[Publishes, int]:
    _, flags, queue_no, first_seq, file_no, count, first = _PUBS.unpack_from(payload, offset)
    if flags & ~(PERSISTENT | DELIVERED | _MSG_NO_LIST | _EXPIRIES) or count < 2:
        raise Corrupt(f"PUBS of {count} messages with flags {flags:#x}")
    at = offset + _PUBS.size
    msg_nos: Sequence[int] = range(first, first + count)
    if flags & _MSG_NO_LIST:
        msg_nos, at = _column(payload, at, "Q", count)
    columns, at = _column(payload, at, "I", 3 * count)
    expiries: Sequence[int] | None = None
    if flags & _EXPIRIES:
        expiries, at = _column(payload, at, "Q", count)
    offsets, lengths = columns[:count], columns[count : 2 * count]
    sizes, kept = columns[2 * count :], flags & (PERSISTENT | DELIVERED)
    run = Publishes(queue_no, first_seq, kept, file_no, msg_nos, offsets, lengths, sizes, expiries)
    return run, at


def _decode_redo(payload: bytes, offset: int) -> tuple[RedoRecord, int]:
    _, file_no, at, count = _CARRY.unpack_from(payload, offset)
    start = offset + _CARRY.size
    end = start + count
    if end > len(payload):
        raise Corrupt(f"journal record is cut off in {count} bytes of messages")
    return RedoRecord(file_no, at, payload[start:end]), end


def _decode_ack(payload: bytes, offset: int) -> tuple[Acks, int]:
    _, queue_no, seq = _ACK.unpack_from(payload, offset)
    return Acks(queue_no, (seq,)), offset + _ACK.size


def _decode_acks(payload: bytes, offset: int) -> tuple[Acks, int]:
    _, queue_no, count = _ACKS.unpack_from(payload, offset)
    seqs, end = _column(payload, offset + _ACKS.size, "Q", count)
    return Acks(queue_no, seqs), end


def _decode_ackr(payload: bytes, offset: int) -> tuple[AckRange, int]:
    _, queue_no, first, last = _ACKR.unpack_from(payload, offset)
    return AckRange(queue_no, first, last), offset + _ACKR.size


def _decode_move(payload: bytes, offset: int) -> tuple[Move, int]:
    _, msg_no, file_no, at, length = _MOVE.unpack_from(payload, offset)
    return Move(msg_no, file_no, at, length), offset + _MOVE.size


def _decode_producer(payload: bytes, offset: int) -> tuple[ProducerSeqs, int]:
    _, levels, queue_no, epoch, used_ms, count, length = _PSEQ.unpack_from(payload, offset)
    start = offset + _PSEQ.size
    producer = payload[start : start + length]
    if len(producer) < length or not length or not levels:
        raise Corrupt(f"PSEQ with a producer id of {length} bytes in {levels} levels")
    row_seqs, at = _column(payload, start + length, "Q", count)
    seqs, at = _column(payload, at, "Q", count)
    return ProducerSeqs(queue_no, levels, producer, epoch, used_ms, row_seqs, seqs), at


_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[JournalRecord, int]]]] = {
    PUB: _decode_pub,
    CARRY: _decode_redo,
    ACK: _decode_ack,
    ACKR: _decode_ackr,
    MOVE: _decode_move,
    PUBS: _decode_pubs,
    ACKS: _decode_acks,
    PSEQ: _decode_producer,
}
