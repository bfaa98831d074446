"""Damage done to stores on a disk, for the tools that audit and repair them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from leveret.core.system.files import Files
from leveret.msg_store.format.folder import StorePaths, read_format
from leveret.msg_store.format.journal_records import RedoRecord
from leveret.msg_store.format.rows import Batch, FileRow
from leveret.msg_store.index.lmdb_index import LmdbIndex
from leveret.msg_store.index.page_check import fault_of
from leveret.msg_store.offline.repair import checkpoint_of
from leveret.msg_store.recovery.journal_reader import JournalFile
from rigs.store.offline.offline_rig import MAP_BYTES, UUID, OfflineRig

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DAMAGES = ["deleted", "zeroed", "truncated", "page", "condemned", "folder"]


def used_bytes(path: Path) -> int:
    """Return how much of a journal is in use."""
    return len(path.read_bytes().rstrip(b"\0"))


def damage_index(rig: OfflineRig, what: str) -> None:
    if what == "folder":
        for path in rig.data.parent.iterdir():
            path.unlink()
        rig.data.parent.rmdir()
        return
    size = rig.data.stat().st_blocks * 512
    match what:
        case "deleted":
            rig.data.unlink()
        case "zeroed":
            rig.data.write_bytes(bytes(size))
        case "truncated":
            os.truncate(rig.data, 8192)
        case "page":  # LMDB ends the process that comes to a leaf like this
            with rig.data.open("r+b") as file:
                for page in leaves(rig):
                    file.seek(page * 4096)
                    file.write(bytes(4096))
        case "condemned":
            (rig.data.parent / "condemned").touch()


def zero_a_leaf(data: Path) -> None:
    """Zero a page of an index that only who looks at leaves can find."""
    with data.open("r+b", buffering=0) as file:
        for page in range(2, data.stat().st_blocks * 512 // PAGE_BYTES):
            before = os.pread(file.fileno(), PAGE_BYTES, page * PAGE_BYTES)
            os.pwrite(file.fileno(), bytes(PAGE_BYTES), page * PAGE_BYTES)
            if fault_of(data) and not fault_of(data, 0):
                return
            os.pwrite(file.fileno(), before, page * PAGE_BYTES)
    raise AssertionError("no tree has more than one page")


def leaves(rig: OfflineRig) -> Iterator[int]:
    """Return the pages that hold rows."""
    for page in range(2, rig.data.stat().st_blocks * 512 // 4096):
        with rig.data.open("rb") as file:
            file.seek(page * 4096)
            _, _, flags = struct.unpack("<QHH", file.read(12))
        if flags == 2:
            yield page


# An index that is well-formed, and wrong.


def change_index(rig: OfflineRig, batch: Batch) -> None:
    index = LmdbIndex(rig.path / "store.lmdb", UUID, MAP_BYTES)
    index.write(batch)
    index.close()


def wrong_count(rig: OfflineRig) -> Batch:
    msg_no, place = next(iter(rig.locations().items()))
    return Batch(locations=[(msg_no, (*place[:4], place[4] + 1))])


def wrong_place(rig: OfflineRig) -> Batch:
    (first, place), (_, other), *_ = rig.locations().items()
    return Batch(locations=[(first, (*place[:1], *other[1:4], place[4]))])


def wrong_body_size(rig: OfflineRig) -> Batch:
    msg_no, place = next(iter(rig.locations().items()))
    return Batch(locations=[(msg_no, (*place[:3], place[3] + 1, place[4]))])


def no_place(rig: OfflineRig) -> Batch:
    return Batch(locations=[(max(rig.locations()), None)])


def place_too_many(rig: OfflineRig) -> Batch:
    place = next(iter(rig.locations().values()))
    return Batch(locations=[(5 << 40, place)])


def wrong_row_size(rig: OfflineRig) -> Batch:
    (queue_no, seq), msg_no = next(iter(rig.rows.items()))
    return Batch(rows={queue_no: {seq: (seq, msg_no, 9, 0, 1)}})


def wrong_sum_of_a_segment(rig: OfflineRig) -> Batch:
    return Batch(files={1: FileRow(1, 2)})


def wrong_sum_of_a_queue(rig: OfflineRig) -> Batch:
    index = LmdbIndex(rig.path / "store.lmdb", UUID, is_readonly=True)
    terms = index.queues()[1]
    index.close()
    return Batch(queues=[(1, terms._replace(messages=3))])


def next_seq_too_low(rig: OfflineRig) -> Batch:
    index = LmdbIndex(rig.path / "store.lmdb", UUID, is_readonly=True)
    terms = index.queues()[1]
    index.close()
    return Batch(queues=[(1, terms._replace(next_seq=1))])


def unknown_queue(rig: OfflineRig) -> Batch:
    return Batch(queues=[(2, None)])


WRONGS = [
    wrong_count,
    wrong_place,
    wrong_body_size,
    no_place,
    place_too_many,
    wrong_row_size,
    wrong_sum_of_a_segment,
    wrong_sum_of_a_queue,
    next_seq_too_low,
    unknown_queue,
]


def lose_inline(path: Path, fate: str) -> list[Path]:
    """Take from the segments what only the journal had to have synced, as a power cut may; return which were changed.

    Args:
        path: the folder of a store that was killed.
        fate: ``cut``: a segment lacks the inline messages at its end; ``zeroed``: it has zeros for all of them.
    """
    lost: dict[Path, list[tuple[int, int]]] = {}
    store = StorePaths(Files(), path, read_format(Files(), path))
    point = checkpoint_of(path, store.uuid)
    for number in store.journal_nos():
        if point is not None and number < point.first_journal:
            continue  # what these have inline was synced for the index
        for _, records in JournalFile(store.journal_path(number).read_bytes(), store.uuid).frames():
            for record in records:
                if isinstance(record, RedoRecord):
                    places = lost.setdefault(store.rdq_path(record.file_no), [])
                    places.append((record.offset, len(record.data)))
    for segment, places in lost.items():
        if fate == "zeroed":
            with segment.open("r+b") as file:
                for offset, length in places:
                    file.seek(offset)
                    file.write(bytes(length))
            continue
        end = segment.stat().st_size
        while places and sum(places[-1]) == end:
            end, _ = places.pop()
        os.truncate(segment, end)
    return [*lost]
