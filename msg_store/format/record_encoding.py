"""Records as they are written; ``record`` has the layout, and reads them.

A module of its own because it is compiled: what reads records runs on threads, with bodies of any size, and a thread
gives up the interpreter's lock between two steps of Python only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgpack

from leveret.core.message import blind_keys_of, exchange_and_key
from leveret.msg_store.format.file_header import Extend
from leveret.msg_store.format.record import HEADER_BYTES, MAGIC, PERSISTENT, QueueNos, Unwritten

_REST: Final = struct.Struct("<IQQIIHH")  # the header without its crc
_packer: Final = msgpack.Packer(use_bin_type=True)


def pack_meta(origin: bytes, head: bytes, queue_nos: QueueNos, guid: bytes | None = None) -> bytes:
    """Return the meta of messages with this origin and head (``core.message``)."""
    exchange, key = exchange_and_key(origin)
    keys = (key,) if type(origin) is bytes else (key, *blind_keys_of(origin))
    packed: bytes = _packer.pack((exchange, keys, guid, head, queue_nos))
    return packed


def encode_run(
    items: Iterable[Unwritten],
    ts_ms: int,
    extend: Extend,
    seed: int,
    parts: list[bytes],
    flags: int = PERSISTENT,
) -> list[int]:
    """Append the records of some messages to ``parts``, three buffers each; return their lengths.

    The meta is packed once for messages in a row with the same origin, head and queues.
    """
    pack, lengths = _REST.pack, []
    last_origin = last_head = last_queues = None
    meta, meta_len = b"", 0
    for msg_no, ((origin, head, body), queue_nos) in items:
        if head != last_head or origin != last_origin or queue_nos != last_queues:
            meta = pack_meta(origin, head, queue_nos)
            meta_len = len(meta)
            last_origin, last_head, last_queues = origin, head, queue_nos
        body_len = len(body)
        total_len = HEADER_BYTES + meta_len + body_len
        rest = pack(total_len, msg_no, ts_ms, meta_len, body_len, flags, MAGIC) + meta
        crc = extend(extend(seed, rest), body)
        parts += (crc.to_bytes(4, "little"), rest, body)
        lengths.append(total_len)
    return lengths
