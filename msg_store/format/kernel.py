"""The store's kernel: its contract, and which of the two implementations runs.

The kernel handles each message of a batch that comes back from the disk; all other code deals with
batches. Two modules implement it: ``leveret.msg_store.format._kernel_py`` and
``leveret.msg_store.format._kernel_c`` (Cython, optional); ``leveret.core.compiled`` chooses one of them.
Everything below is true of both; the same tests and properties hold them to it.

A *place* is a tuple ``(file_no, offset, total_len, ...)``, as ``rows.Location`` is.

* ``runs(places: list[Place], gap_bytes: int, join_bytes: int) -> list[tuple[int, int]] | None``: places that
  can be read at once. Half-open ranges of positions, which cover ``places``; those of a range are in one file,
  each begins at most ``gap_bytes`` behind the end of the one before, and they span at most
  ``join_bytes``, or there is one only. None if the places do not ascend by file and offset.
* ``decode_run(data: bytes, start: int, msg_nos: list[int], places: list[Place], kind: int, seed: int,
  parts_of, messages: dict[int, Message]) -> tuple[list[Want], int]``: reads records of which number and place are
  known out of bytes of a segment that begin at ``start``. ``kind`` and ``seed`` are those of the
  checksum. Good messages are put into ``messages``; ``parts_of(meta: bytes) -> (origin, head)`` is called when
  a meta differs from that before, so messages of one publisher share both. Returns ``(msg_no, place)`` of the
  others, also where ``parts_of`` raised ``Corrupt``, and the size of the good messages' bodies.
* ``checksums(data: Buffer, kind: int, seed: int, begins: Buffer, ends: Buffer) -> bytes``: the checksums of the bytes
  between these offsets, which are signed and of 8 bytes; four bytes each, in the machine's order. ``ValueError`` if an
  offset is outside of the data, or there are not equally many.
* ``locations(values: list[bytes]) -> list[Location]``: the index's values of messages; ``struct.error`` if one is not
  20 bytes long.
* ``total(places: list[Location]) -> tuple[int, int, dict[int, int]]``: their reference counts and their bodies, and by
  segment the bytes of their records.
* ``rows(values: list[bytes], first_seq: int) -> list[IndexRow]``: the index's values of rows at seqs in a row;
  ``struct.error`` if one is not 21 bytes long.
* ``entries(rows: list[IndexRow], persistent: bool) -> list[Entry]``: entries of a queue whose rows and contents
  are on disk, as ``core.entry`` has them: ``(seq, None, expiry_ms, persistent, msg_no, body_size, True,
  True)``.
* ``bytes_of(entries: Iterable[Entry]) -> int``: the sizes of such entries.
* ``row_items(queue_no: int, rows: list[IndexRow]) -> list[tuple[bytes, bytes]]``: keys and values of rows for the
  index, in the order given.
* ``location_items(places: list[tuple[int, Location | None]]) -> list[tuple[bytes, bytes]]``: keys and values of
  locations, in the order given; messages without a place are left out. Both: ``struct.error`` or
  ``OverflowError`` if a number does not fit.
* ``take(contents: dict[int, Message], keys: list[int]) -> tuple[list[Message], int]``: takes messages out, up to the
  first that is not there; no key comes twice. Returns them and their ``size_of``.
* ``size_of(messages: Iterable[Message]) -> int``: bytes of their heads and bodies.

Writing: ``Caller(notifier)`` makes system calls on a thread of its caller's, one batch at a time. The
compiled one needs the interpreter's lock neither to take them nor to make them nor to say that it is done, so it
does not wait for the loop, nor hold it up.

* ``run()``: the thread's work; returns after ``close``.
* ``submit(steps: list[tuple[int, bytes | None, int]])``: has the thread make calls, each with a descriptor: write all
  of these bytes at this offset, behind the end of a file opened for appending if it is negative; or, without
  bytes, ``fdatasync``. The list may be empty.
* ``submit_call(work: Callable[[], object])``: has the thread call a function instead, which may not raise. Both:
  ``RuntimeError`` if the outcome of the work before has not been taken, or after ``close``.
* ``take_outcome() -> tuple[int, int, int, object] | None``: the outcome, once, when the work is done: how many
  calls succeeded, the errno of the call after them (0: none failed), how long the syncs took, in ns, and
  the function's result.
* ``close()``: from any thread, once: ``run`` ends when the submitted work is done.

``Notifier(descriptor)`` counts finished batches, of one ``Caller`` or several, and wakes the loop once for all of them.

* ``expect(count: int)``: so many batches will be submitted now; no other is in flight.
* ``done()``: one batch is done. With the last one, eight bytes are written to the descriptor, for an eventfd or a pipe.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leveret.core.compiled import choose_kernel

if TYPE_CHECKING:
    from leveret.msg_store.format import _kernel_py as _kernel

    KERNEL_NAME: str
else:
    KERNEL_NAME, _kernel = choose_kernel("leveret.msg_store.format", Path(__file__).parent)

checksums, decode_run = _kernel.checksums, _kernel.decode_run
locations, runs = _kernel.locations, _kernel.runs
rows, entries, row_items = _kernel.rows, _kernel.entries, _kernel.row_items
bytes_of, location_items = _kernel.bytes_of, _kernel.location_items
size_of, take, total = _kernel.size_of, _kernel.take, _kernel.total
Notifier = _kernel.Notifier
Caller = _kernel.Caller
