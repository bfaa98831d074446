"""Headers, records and frames are decoded to the encoded values; damaged bytes are not decoded.

Tests: msg_store/format/journal_records.py
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import fields
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.message import origin_of
from leveret.msg_store.format import file_header as fh
from leveret.msg_store.format import journal_frames as frames
from leveret.msg_store.format import journal_records as records
from leveret.msg_store.format import record, record_encoding
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import CRC32, CRC32C, Extend, extender

SEED = 0xC0FFEE
u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
kinds = st.sampled_from([CRC32, CRC32C]).map(extender)
short = st.binary(max_size=255)
queue_nos = st.lists(u32, min_size=1, max_size=4).map(tuple)
blind_keys = st.lists(st.binary(max_size=300), max_size=2)
origins = st.builds(
    lambda exchange, key, blind: origin_of(exchange, key, *blind), short, short, blind_keys
)
messages = st.tuples(origins, st.binary(max_size=40), st.binary(max_size=300))
headers = st.builds(
    fh.FileHeader,
    magic=st.sampled_from([fh.RDQ_MAGIC, fh.JOURNAL_MAGIC]),
    number=u32,
    uuid=st.binary(min_size=16, max_size=16),
    created_ms=u64,
    boot_epoch=st.integers(0, fh.EPOCH_MAX),
    crc_kind=st.sampled_from([CRC32, CRC32C]),
    first_lsn=u64,
    flags=st.sampled_from([0, fh.MOVED]),
)


def columns(count: int) -> st.SearchStrategy[records.Publishes]:
    def column(of: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...]]:
        return st.lists(of, min_size=count, max_size=count).map(tuple)

    in_a_row = st.integers(0, (1 << 64) - 1 - count).map(lambda n: tuple(range(n, n + count)))
    expiries = column(st.integers(1, (1 << 64) - 1)) | st.none()
    return st.builds(
        records.Publishes,
        queue_no=u32,
        first_seq=u64,
        flags=st.sampled_from([0, 1, 2, 3]),
        file_no=u32,
        msg_nos=in_a_row | column(u64),
        offsets=column(u32),
        lengths=column(u32),
        body_sizes=column(u32),
        expiries_ms=expiries,
    )


publishes = st.integers(1, 8).flatmap(columns)
moves = st.builds(records.Move, u64, u32, u32, u32)
inline = st.builds(records.RedoRecord, u32, u32, st.binary(max_size=50))
ranges = st.builds(records.AckRange, u32, u64, u64)
seq_lists = st.sets(st.integers(0, 60), min_size=1).map(sorted)


def encoded(operation: records.JournalRecord) -> bytes:
    match operation:
        case records.Publishes():
            return records.encode_publishes(operation)
        case records.Move():
            return records.encode_move(operation)
        case records.AckRange(queue_no, first, last):
            return struct.pack("<BIQQ", records.ACKR, queue_no, first, last)
        case records.RedoRecord():
            return records.encode_redo(operation.file_no, operation.offset, operation.data)
    raise AssertionError(operation)


operations = publishes | moves | ranges | inline


def plain(operation: records.JournalRecord) -> object:
    if not isinstance(operation, records.Publishes):
        return operation
    values = [getattr(operation, each.name) for each in fields(operation)]
    return [each if isinstance(each, int | None) else list(each) for each in values]


def frame_of(operations: list[records.JournalRecord], extend: Extend, lsn: int = 1) -> bytes:
    durable = frames.DurablePosition(lsn, 2, 3)
    return frames.encode_frame([*map(encoded, operations)], lsn, 77, durable, extend, SEED)[0]


def run_of(items: list, extend: Extend) -> bytes:
    parts: list[bytes] = []
    lengths = record_encoding.encode_run(items, 5, extend, SEED, parts)
    data = b"".join(parts)
    assert sum(lengths) == len(data)
    return data


items = st.lists(st.tuples(u64, st.tuples(messages, queue_nos)), min_size=1, max_size=5)


def header_bytes(header: fh.FileHeader) -> bytes:
    identity = fh.Identity(header.uuid, header.boot_epoch, header.crc_kind)
    numbers = header.number, header.created_ms, header.first_lsn, header.flags
    return identity.header(header.magic, *numbers)


@given(headers)
def test_a_file_header_is_read_as_it_was_written(header: fh.FileHeader) -> None:
    data = header_bytes(header)

    assert len(data) == fh.HEADER_BYTES
    assert fh.decode_header(data + b"more", header.magic) == header


@given(headers, st.data())
def test_every_flipped_bit_of_a_file_header_is_seen(
    header: fh.FileHeader, data: st.DataObject
) -> None:
    with pytest.raises(Corrupt):
        fh.decode_header(flipped(header_bytes(header), data), header.magic)


def flipped(encoded: bytes, data: st.DataObject) -> bytes:
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    changed = bytearray(encoded)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(items, kinds)
def test_records_of_a_run_are_read_one_after_another(items: list, extend: Extend) -> None:
    data, offset = run_of(items, extend), 0

    for msg_no, ((origin, head, body), queue_nos) in items:
        read = record.decode_record(data, extend, SEED, offset)
        meta = record.unpack_meta(read.meta)
        assert (read.msg_no, read.ts_ms, read.flags, read.body) == (msg_no, 5, 1, body)
        assert origin_of(meta.exchange, *meta.routing_keys) == origin
        assert (meta.head, meta.queue_nos, meta.guid) == (head, queue_nos, None)
        offset += read.total_len
    assert offset == len(data)


def test_neighbours_of_a_run_that_differ_in_one_part_keep_their_own_meta() -> None:
    origins = [origin_of(b"x", b"k"), origin_of(b"x", b"k", b"blind"), origin_of(b"x", b"other")]
    metas = [*product(origins, (b"h", b"i"), ((1,), (2,)))]
    neighbours = [meta for pair in permutations(metas, 2) for meta in pair]
    extend = extender(CRC32)
    run = [(7, ((origin, head, b"body"), nos)) for origin, head, nos in neighbours]
    data, offset = run_of(run, extend), 0

    for origin, head, nos in neighbours:
        read = record.decode_record(data, extend, SEED, offset)
        meta = record.unpack_meta(read.meta)
        found = origin_of(meta.exchange, *meta.routing_keys), meta.head, meta.queue_nos
        assert found == (origin, head, nos)
        offset += read.total_len


def test_a_guid_is_kept_for_mirrors() -> None:
    meta = record_encoding.pack_meta(origin_of(b"x", b"k"), b"h", (1,), b"g" * 16)

    assert record.unpack_meta(meta).guid == b"g" * 16


@given(items, kinds, st.data())
def test_every_flipped_bit_of_a_record_is_seen(
    items: list, extend: Extend, data: st.DataObject
) -> None:
    with pytest.raises(Corrupt):
        record.decode_record(flipped(run_of(items[:1], extend), data), extend, SEED)


@given(items, kinds, st.data())
def test_a_record_cut_anywhere_is_not_whole(
    items: list, extend: Extend, data: st.DataObject
) -> None:
    whole = run_of(items[:1], extend)

    cut = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(Corrupt):
        record.decode_record(whole[:cut], extend, SEED)


@given(operations, kinds)
def test_a_journal_record_is_read_as_it_was_written(
    operation: records.JournalRecord, extend: Extend
) -> None:
    frame = frames.decode_frame(frame_of([operation], extend), extend, SEED)

    assert [*map(plain, records.decode_records(frame.payload, 1))] == [plain(operation)]


@given(u32, seq_lists)
def test_acks_are_the_same_seqs_however_they_lie(queue_no: int, seqs: list[int]) -> None:
    encoded = records.encode_acks(queue_no, seqs)
    read: list[int] = []
    for each in records.decode_records(b"".join(encoded), len(encoded)):
        assert each.queue_no == queue_no
        if isinstance(each, records.AckRange):
            read += range(each.first, each.last + 1)
        else:
            read += each.seqs

    assert sorted(read) == seqs
    assert len(encoded) <= len(seqs)


@given(st.lists(operations, max_size=5), kinds, st.data())
def test_every_flipped_bit_of_a_frame_is_seen(
    operations: list, extend: Extend, data: st.DataObject
) -> None:
    with pytest.raises(Corrupt):
        frames.decode_frame(flipped(frame_of(operations, extend), data), extend, SEED)


@given(st.lists(st.lists(operations, max_size=3), max_size=4), st.binary(max_size=80), kinds)
def test_garbage_behind_frames_leaves_the_frames(
    batches: list, garbage: bytes, extend: Extend
) -> None:
    data = b"".join(frame_of(batch, extend, lsn) for lsn, batch in enumerate(batches)) + garbage
    offset, read = 0, []
    with pytest.raises(Corrupt):  # noqa: PT012
        while True:
            frame = frames.decode_frame(data, extend, SEED, offset)
            read.append([*map(plain, records.decode_records(frame.payload, frame.n_records))])
            offset = frame.end

    assert read == [[*map(plain, batch)] for batch in batches]


@given(st.binary(max_size=200), st.integers(-3, 250), u32, kinds)
def test_arbitrary_bytes_are_corrupt_and_nothing_else(
    data: bytes, offset: int, count: int, extend: Extend
) -> None:
    """No other error, no endless loop, and hardly ever a value."""
    for decode in (
        lambda: fh.decode_header(data, fh.RDQ_MAGIC),
        lambda: record.decode_record(data, extend, SEED, offset),
        lambda: record.total_len_at(data, offset),
        lambda: record.unpack_meta(data),
        lambda: frames.decode_frame(data, extend, SEED, offset),
        lambda: [*records.decode_records(data, count)],
    ):
        with suppress(Corrupt):
            decode()
    assert frames.next_frame(data, extend, SEED, max(offset, -1)) is None
    assert record.next_magic(data, max(offset, 0)) >= -1


@given(publishes, st.data())
def test_a_journal_record_cut_anywhere_is_corrupt(
    run: records.Publishes, data: st.DataObject
) -> None:
    whole = records.encode_publishes(run)
    cut = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(Corrupt):
        list(records.decode_records(whole[:cut], 1))
    with pytest.raises(Corrupt):
        list(records.decode_records(whole + b"\x00", 1))


@pytest.mark.parametrize("kind", sorted(records.RESERVED))
def test_reserved_types_are_refused_by_name(kind: int) -> None:
    with pytest.raises(Corrupt, match="reserved"):
        list(records.decode_records(bytes([kind]) + bytes(40), 1))


def test_a_body_that_holds_a_record_does_not_pass_for_one_without_the_stores_seed() -> None:
    extend = extender(CRC32)
    forged: list[bytes] = []
    record_encoding.encode_run([(1, ((b"\0\0", b"", b"forged"), (1,)))], 5, extend, 0, forged)
    data = run_of([(2, ((b"\0\0", b"", b"".join(forged)), (1,)))], extend)
    inside = record.next_magic(data, 0)

    assert record.total_len_at(data, inside) > 0
    with pytest.raises(Corrupt):
        record.decode_record(data, extend, SEED, inside)


def test_a_run_of_messages_is_small() -> None:
    """Thirteen bytes per message and no more: offset, two lengths."""
    run = records.Publishes(1, 5, 1, 3, range(9, 109), [0] * 100, [1] * 100, [2] * 100, None)

    assert len(records.encode_publishes(run)) <= 100 * 12 + 32
