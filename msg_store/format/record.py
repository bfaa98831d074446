"""A message in a segment: a header of 36 bytes, its meta, its body as it came.

::

    crc:u32 total_len:u32 msg_no:u64 ts_ms:u64 meta_len:u32 body_len:u32 flags:u16 magic:u16
    meta[meta_len] body[body_len]                                                 little endian

* ``crc`` covers everything behind it, seeded by the store (``file_header``). ``total_len`` counts all,
  the crc too; 0 means that nothing was written here (the zeros behind a torn end).
* ``msg_no`` is ``boot_epoch << 40 | counter``: never used twice, growing within a file.
* ``ts_ms`` is when it was taken in, for replays; nothing depends on it.
* ``magic`` helps to find the next record behind a damaged one.
* ``meta`` is msgpack ``[exchange, [routing_key, blind_key...], guid or nil, head, [queue_no...]]``: enough to
  read a segment, or to save a store, with nothing else at hand. Blind keys are those of ``BCC``. ``head`` is the
  payload of the content header frame as received, but for ``BCC``; the queues are all that routing chose, each by
  its route number.

A queue with priorities keeps the rows of each under a number of its own, its own number plus the
priority. Messages are routed to the queue, and a batch has one route whatever the priorities in it, so
a record can only name the queue. For a rebuild to find the row's number, it has the highest priority as
well: ``queue_no | highest << 32``, the **route number**. Without priorities that is the queue's number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from leveret.amqp.properties import examine
from leveret.core.message import Message
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import Extend

HEADER_BYTES: Final = 36
MAGIC: Final = 0x4C56
PERSISTENT: Final = 1
MOVED: Final = 2  # reserved: "moved" is a flag of the file
GUID: Final = 4

QueueNos: TypeAlias = tuple[int, ...]
Unwritten: TypeAlias = tuple[int, tuple[Message, QueueNos]]
Place: TypeAlias = Sequence[int]  # file_no, offset, total_len; a Location has more
Want: TypeAlias = tuple[int, Place]  # msg_no, where

HEADER: Final = struct.Struct("<IIQQIIHH")
_CRC: Final = struct.Struct("<I")
_MAGIC_AT: Final = HEADER_BYTES - 2
_PIECE_BYTES: Final = 1024 * 1024  # a copy of more would hold the interpreter's lock for long
_MAGIC_BYTES: Final = MAGIC.to_bytes(2, "little")
FLAGS: Final = PERSISTENT | MOVED | GUID
_ROUTE_SHIFT: Final = 32
_QUEUE_NO: Final = (1 << _ROUTE_SHIFT) - 1


class Record(NamedTuple):
    """A record as read; ``meta`` is still packed."""

    msg_no: int
    ts_ms: int
    flags: int
    total_len: int
    meta: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Meta:
    """The meta of a record, unpacked."""

    exchange: bytes
    routing_keys: tuple[bytes, ...]
    guid: bytes | None
    head: bytes
    queue_nos: QueueNos


def unpack_meta(meta: bytes) -> Meta:
    """Read a record's meta; ``Corrupt`` if it lacks fields or one has another type."""
    try:
        fields: Any = msgpack.unpackb(meta, raw=False)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Corrupt(f"meta of a record is not msgpack: {error}") from error
    if not isinstance(fields, list) or len(fields) != 5:
        raise Corrupt("meta of a record has not five fields")
    exchange, keys, guid, head, queue_nos = fields
    texts = isinstance(exchange, bytes) and isinstance(head, bytes)
    if not texts or not isinstance(guid, bytes | None):
        raise Corrupt("exchange, guid or head of a record is not bytes")
    if not _all_of(keys, bytes) or not _all_of(queue_nos, int):
        raise Corrupt("routing keys or queues of a record are not lists of bytes and numbers")
    return Meta(exchange, tuple(keys), guid, head, tuple(queue_nos))


def _all_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _header(data: bytes, offset: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the fields of the record header at ``offset``, checked as far as they can be."""
    if offset < 0 or len(data) - offset < HEADER_BYTES:
        raise Corrupt("the file ends inside a record header")
    fields = HEADER.unpack_from(data, offset)
    _, total_len, _, _, meta_len, body_len, flags, magic = fields
    if magic != MAGIC:
        raise Corrupt(f"magic of a record is {magic:#06x}, not {MAGIC:#06x}")
    if total_len != HEADER_BYTES + meta_len + body_len or flags & ~FLAGS:
        raise Corrupt(f"record of {total_len} bytes with meta {meta_len}, body {body_len}")
    return fields


def header_at(data: bytes, offset: int = 0) -> tuple[int, int]:
    """Return number and length in the record header at ``offset``; ``Corrupt`` if none stands there."""
    _, total_len, msg_no, _, _, _, _, _ = _header(data, offset)
    return msg_no, total_len


def total_len_at(data: bytes, offset: int = 0) -> int:
    """Return the length that the record header at ``offset`` gives; ``Corrupt`` as ``header_at``."""
    return _header(data, offset)[1]


def check_record(data: bytes, extend: Extend, seed: int, offset: int = 0) -> None:
    """Check the record at ``offset``; ``Corrupt`` if it is torn or its checksum is wrong."""
    crc, total_len, msg_no, *_ = _header(data, offset)
    end = offset + total_len
    if end > len(data):
        raise Corrupt(f"the file ends inside a record of {total_len} bytes")
    for begin in range(offset + _CRC.size, end, _PIECE_BYTES):
        seed = extend(seed, data[begin : min(begin + _PIECE_BYTES, end)])
    if seed != crc:
        raise Corrupt(f"checksum of record {msg_no:#x} is wrong")


def decode_record(data: bytes, extend: Extend, seed: int, offset: int = 0) -> Record:
    """Read the record at ``offset``; ``Corrupt`` as ``check_record``."""
    check_record(data, extend, seed, offset)
    _, total_len, msg_no, ts_ms, meta_len, _, flags, _ = _header(data, offset)
    meta_at = offset + HEADER_BYTES
    body_at, end = meta_at + meta_len, offset + total_len
    return Record(msg_no, ts_ms, flags, total_len, data[meta_at:body_at], data[body_at:end])


def stamp_at(data: bytes, offset: int = 0) -> tuple[int, int, int]:
    """Return time, length and the meta's length in the record header at ``offset``; ``Corrupt`` as ``header_at``."""
    _, total_len, _, ts_ms, meta_len, _, _, _ = _header(data, offset)
    return ts_ms, total_len, meta_len


def lengths_at(header: bytes) -> tuple[int, int, int]:
    """Return the lengths of a whole record, its meta and its body; ``Corrupt`` as ``header_at``."""
    _, total_len, _, _, meta_len, body_len, _, _ = _header(header, 0)
    return total_len, meta_len, body_len


def record_of(header: bytes, meta: bytes, body: bytes, extend: Extend, seed: int) -> Record:
    """Return a record that was read in three; ``Corrupt`` if it is torn or its checksum is wrong."""
    crc, total_len, msg_no, ts_ms, _, _, flags, _ = _header(header, 0)
    if HEADER_BYTES + len(meta) + len(body) != total_len:
        raise Corrupt(f"the file ends inside a record of {total_len} bytes")
    if extend(extend(seed, header[_CRC.size :] + meta), body) != crc:
        raise Corrupt(f"checksum of record {msg_no:#x} is wrong")
    return Record(msg_no, ts_ms, flags, total_len, meta, body)


def resealed(data: bytes, extend: Extend, seed: int) -> bytes:
    """Return a good record as another store would have written it."""
    rest = data[_CRC.size :]
    return extend(seed, rest).to_bytes(4, "little") + rest


def next_magic(data: bytes, offset: int) -> int:
    """Return where behind ``offset`` a record may begin, judged by its magic; -1 if nowhere."""
    at = data.find(_MAGIC_BYTES, offset + 1 + _MAGIC_AT)
    return at - _MAGIC_AT if at >= 0 else -1


def route_no(queue_no: int, highest: int) -> int:
    """Return the route number of a queue; ``highest`` is its highest priority, 0 without priorities."""
    return queue_no | highest << _ROUTE_SHIFT


def queue_no_of(route_no: int) -> int:
    """Return the queue's number in a route number."""
    return route_no & _QUEUE_NO


def row_number(route_no: int, head: bytes) -> int:
    """Return the number that a message's row is under, given a record's route number and content header."""
    highest = route_no >> _ROUTE_SHIFT
    if not highest:
        return route_no
    return queue_no_of(route_no) + min(examine(head).priority or 0, highest)
