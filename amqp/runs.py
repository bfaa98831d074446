"""Runs of messages as bytes, for the pure-Python kernel; ``leveret/amqp/kernel.py`` says how."""

from __future__ import annotations

from itertools import accumulate, pairwise, repeat
from struct import error, pack, unpack_from
from typing import Any, Final

from leveret.core.message import Message

_COUNTS_BYTES: Final = 8
_SIZE_BYTES: Final = 4
_COPIED_BYTES_MAX: Final = 4096  # bodies up to this mean size are cut from one copy of them all


def head_bytes(messages: list[Message]) -> int:
    """Return the bytes of the heads of messages."""
    return sum([len(message[1]) for message in messages])


def body_bytes(messages: list[Message]) -> int:
    """Return the bytes of the bodies of messages."""
    return sum([len(message[2]) for message in messages])


def pack_run(messages: list[Message], bodies: bool = True) -> tuple[list[bytes], bytes]:
    """Return the origins of messages, and their heads and bodies as bytes; without ``bodies`` only their sizes."""
    if any(type(each) is not tuple or len(each) != 3 for each in messages):
        raise TypeError("a message is a tuple of three bytes: origin, head and body")
    origins = [message[0] for message in messages]
    heads = [message[1] for message in messages]
    contents = [message[2] for message in messages]
    count = len(messages)
    if all(origin is origins[0] for origin in origins):
        del origins[1:]
    if heads.count(heads[0] if heads else b"") == count:
        del heads[1:]
    sizes = [*map(len, heads), *map(len, contents)]
    start = pack(f">{2 + len(sizes)}I", count, len(heads), *sizes)
    return origins, b"".join([start, *heads, *(contents if bodies else ())])


def unpack_run(origins: list[bytes], packed: bytes | memoryview) -> list[Message]:
    """Return the messages of such values; ValueError: they do not fit together."""
    try:
        count, shared = unpack_from(">2I", packed)
        sizes = unpack_from(f">{shared + count}I", packed, _COUNTS_BYTES)
    except error as problem:
        raise ValueError(f"a run whose sizes are cut off, in {len(packed)} bytes") from problem
    start = _COUNTS_BYTES + _SIZE_BYTES * len(sizes)
    edges = list(accumulate(sizes, initial=start))
    if edges[-1] != len(packed) or not fits(count, shared) or not fits(count, len(origins)):
        raise ValueError(
            f"a run of {edges[-1]} bytes, {count} bodies, {shared} heads and {len(origins)} origins,"
            f" in {len(packed)} bytes"
        )
    source: Any = packed
    if len(packed) <= _COPIED_BYTES_MAX * count:
        source = bytes(packed)
    cut = [bytes(source[begin:end]) for begin, end in pairwise(edges)]
    return list(
        zip(
            origins if len(origins) == count else repeat(origins[0], count),
            cut[:shared] if shared == count else repeat(cut[0], count),
            cut[shared:],
            strict=True,
        )
    )


def fits(count: int, several: int) -> bool:
    """Return whether there is one for each of ``count`` messages, or one for all."""
    return several == count or (several == 1 and count > 0)
