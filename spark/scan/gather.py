r"""Byte ranges of a buffer into Arrow arrays, without an object per value.

A *range* is ``(start, length)``. Ranges that ascend and do not overlap are one Arrow array over the buffer itself: its
offsets are start and end of each range in turn, so every second element is a range, the others are the gaps between.
Arrow's ``take`` then copies the ranges into a compact array, at the speed of ``memcpy``.

AMQP strings are bytes that should be UTF-8. Arrow's and Spark's strings must be, so where one of a batch is not, the
bytes that are not are written as ``\\xNN``, as ``leveret.amqp.tables.plain`` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]


def gather(
    buffer: Any, starts: Numbers, lengths: Numbers, rows: Numbers | None = None, count: int = 0
) -> Any:
    """Return a binary array of ranges.

    Args:
        buffer: an Arrow buffer.
        starts: of the ranges, ascending; they span less than 2 GiB.
        lengths: of the ranges, in bytes.
        rows: of the result, which range each row has, -1 for null; None: all ranges, in order.
        count: how many rows the result has if there are no ranges.
    """
    if not len(starts):
        return pa.nulls(count if rows is None else len(rows), pa.binary())
    base = int(starts[0])
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts - base
    offsets[1::2] = starts + lengths - base
    data = buffer.slice(base, int(offsets[-1]))
    ranges = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(starts) - 1, [None, pa.py_buffer(offsets), data]
    )
    if rows is None:
        return ranges.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))
    wanted = (rows * 2).astype(np.int32)
    missing = rows < 0
    return ranges.take(pa.array(wanted, mask=missing) if missing.any() else pa.array(wanted))


def text(values: Any) -> Any:
    r"""Return a binary array as strings; bytes that are not UTF-8 are written as ``\\xNN``."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        strings = [
            None if value is None else value.decode("utf-8", "backslashreplace")
            for value in values.to_pylist()
        ]
        return pa.array(strings, pa.string())


def contents(values: Any) -> Numbers:
    """Return the bytes of a binary array that has no nulls, one value behind the other."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[
        values.offset : values.offset + len(values) + 1
    ]
    data = values.buffers()[2]
    if data is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
