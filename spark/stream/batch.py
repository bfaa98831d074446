"""The work of a batch: its offsets into pieces of segments, and those into partitions.

Only the offsets decide which bytes are read, so the same batch can be planned again; ``archive.json`` only says what is
torn, and whether a segment that is gone had anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from leveret.msg_store.format.errors import Corrupt
from leveret.spark.errors import OptionError
from leveret.spark.scan.batches import BatchSettings
from leveret.spark.scan.manifest import local_path
from leveret.spark.scan.options import StreamOptions
from leveret.spark.scan.schema import columns_of
from leveret.spark.stream.admission import packed, room_of
from leveret.spark.stream.archived_store import ArchivedStore, find_archives
from leveret.spark.stream.losses import at, losses
from leveret.spark.stream.offsets import StoreOffset, decoded
from leveret.spark.stream.tasks import Piece, gone, report
from leveret.spark.stream.unread import torn_in
from leveret.spark.stream.walking import pieces_of


def partitions_of(
    options: StreamOptions, start: Mapping[str, Any], end: Mapping[str, Any]
) -> list[tuple[Piece, ...]]:
    """Return the partitions of a batch, each a row of pieces, in the order of the stores.

    Raises:
        DataLoss: a segment was freed since the offsets were made, and that is to be an error.
        OptionError: the offsets are not those of one batch.
        StoreError: an ``archive.json`` is damaged.
    """
    begin, stop = decoded(start), decoded(end)
    changed = {no: offset for no, offset in stop.items() if offset != begin.get(no)}
    if not changed:
        return []
    found = find_archives([local_path(path) for path in options.paths])
    pieces: list[Piece] = []
    for store_id, offset in changed.items():
        _check(store_id, begin.get(store_id), offset)
        store = found.get(store_id)
        if store is None:
            for lost in losses(None, (), offset):
                report(f"store {store_id}: {lost}", options.reading.fail_on_data_loss)
        else:
            pieces += _pieces_in(store, offset, options)
    pieces = _cut(pieces, options)
    sizes = [piece.part.size_bytes for piece in pieces]
    room = room_of(sizes, options.reading.partition_bytes, options.reading.min_partitions)
    return [tuple(pieces[place] for place in places) for places in packed(sizes, room)]


def settings_of(options: StreamOptions) -> BatchSettings:
    """Return how tasks make record batches; OptionError: a column is unknown."""
    return BatchSettings.of(columns_of("archive", options.columns), options.reading)


def _check(store_id: str, before: StoreOffset | None, offset: StoreOffset) -> None:
    if before is None or not offset.ranges:
        return
    first = offset.ranges[0]
    if (first.segment, first.low) < before.position:
        raise OptionError(
            f"offsets of store {store_id} are not those of one batch: it begins at {at(before.position)}, and has "
            f"segment {first.segment:08x} from byte {first.low} on; the checkpoint is damaged"
        )


def _pieces_in(store: ArchivedStore, offset: StoreOffset, options: StreamOptions) -> list[Piece]:
    """Return the segments of a batch that are there."""
    pieces = []
    for part in offset.ranges:
        piece = Piece(
            str(store.path),
            store.contents.uuid,
            store.node,
            store.vhost,
            offset.queues,
            part,
            torn_in(store, part.segment),
        )
        if Path(store.segment_path(part.segment)).exists():
            pieces.append(piece)
        elif lost := gone(piece):
            report(lost, options.reading.fail_on_data_loss)
    return pieces


def _cut(pieces: Sequence[Piece], options: StreamOptions) -> list[Piece]:
    """Cut pieces that are larger than a partition may be, or if there are too few of them."""
    sizes = [piece.part.size_bytes for piece in pieces]
    room = room_of(sizes, options.reading.partition_bytes, options.reading.min_partitions)
    is_few = len(pieces) < options.reading.min_partitions
    made: list[Piece] = []
    for piece, size_bytes in zip(pieces, sizes, strict=True):
        if size_bytes > room and (is_few or size_bytes > options.reading.partition_bytes):
            made += _pieces_of(piece, room)
        else:
            made.append(piece)
    return made


def _pieces_of(piece: Piece, size_bytes: int) -> list[Piece]:
    try:
        segment = piece.open()
    except (FileNotFoundError, Corrupt):
        return [piece]  # the task reports it
    with segment:
        parts = pieces_of(segment, piece.part, piece.torn, size_bytes)
        return [replace(piece, part=part) for part in parts]
