"""Offsets: how far the archive of each store has been read, and which bytes the last batch has of it.

The source reads the segments of a broker that goes on writing, merging and removing them, and asks it for nothing.
It reads ``archive.json``, which the store replaces now and then (``msg_store.archive``), and segments below its
watermark.

**Final bytes.** Below the watermark all bytes are durable and stay as they are, over crashes too, as long as their
segment is there. So the last segment, which is still written, is read up to the watermark and no further: no row is
shown that a crash could take back. Bytes that crashes have left behind are named in ``archive.json`` (``ends``,
``torn``), as far back as the archive goes (``begun``); nothing before that is read. *Copies*, which the collector makes
of older segments, hold messages for the second time, and are passed over.

**Batches.** The same offsets must give the same rows, whatever happened in between. A position alone does not
promise that: where a segment ended, which segments there were, and which queues were archived may have changed. So the
offset in which a batch ends has all of it: the *ranges* of bytes and the queues, by their numbers. Planning a batch
again reads nothing but offsets, and finds the same bytes or finds a file gone::

    {"STORE_ID": {"segment": 13, "byte": 500, "frees": 8,
                  "queues": {"7": "events"}, "ranges": {"12": "30000-67108900", "13": "64-500"}}}

``STORE_ID`` is the UUID of a vhost's store in hex, different in each vhost of each node. Segments are decimal here.

**Loss.** Retention frees segments whether they have been read or not, without asking readers: a reader that has died
must not fill the broker's disk. ``archive.json`` says of each queue up to which position it was freed, and says so
before a segment is unlinked. A batch has lost messages if a queue was freed beyond its start since that start was taken
(``frees`` counts; ``losses``). A file that goes between planning and reading is judged by the same numbers where it
is opened; a file that is open stays readable.

**Turned down.** Leases, by which a reader keeps segments: dead readers have to be found out, and it would write into
the broker's folder. Reading sealed segments only: a queue of little traffic would be hours late. A list of all
segments in ``archive.json``: the directory is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from leveret.msg_store.archive.archive import Position
from leveret.spark.errors import OptionError


class Range(NamedTuple):
    """Bytes of a segment, from ``low`` up to but not including ``high``; records begin and end there."""

    segment: int
    low: int
    high: int

    @property
    def size_bytes(self) -> int:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class StoreOffset:
    """How far a store has been read.

    Attributes:
        position: everything before it was read.
        frees: of the archive, when the offset was made; 0 if that is not known.
        queues: names of the queues that were read, by the number in routes.
        ranges: of the batch that ends here, ascending.
    """

    position: Position
    frees: int = 0
    queues: Mapping[int, str] = field(default_factory=dict)
    ranges: tuple[Range, ...] = ()


Offsets: TypeAlias = dict[str, StoreOffset]  # by store_id


def encoded(offsets: Mapping[str, StoreOffset]) -> dict[str, Any]:
    """Return offsets as Spark checkpoints them; equal offsets are equal as JSON."""
    return {
        store_id: {
            "segment": each.position.segment,
            "byte": each.position.byte,
            "frees": each.frees,
            "queues": {str(number): name for number, name in each.queues.items()},
            "ranges": {str(part.segment): f"{part.low}-{part.high}" for part in each.ranges},
        }
        for store_id, each in offsets.items()
    }


def decoded(fields: Mapping[str, Any]) -> Offsets:
    """Read offsets; all but ``segment`` may be missing.

    Raises:
        OptionError: they have another form.
    """
    return {store_id: _store_offset(store_id, each) for store_id, each in fields.items()}


def _store_offset(store_id: str, fields: Mapping[str, Any]) -> StoreOffset:
    try:
        position = Position(int(fields["segment"]), int(fields.get("byte", 0)))
        queues = {int(number): str(name) for number, name in fields.get("queues", {}).items()}
        ranges = [
            Range(int(segment), *map(int, text.split("-")))
            for segment, text in fields.get("ranges", {}).items()
        ]
        return StoreOffset(position, int(fields.get("frees", 0)), queues, tuple(sorted(ranges)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OptionError(
            f'offset of store {store_id} is {fields}, it must be as {{"segment": 12, "byte": 64}}: {error!r}'
        ) from error
