"""Costs of the message store's codecs and group commit per message, without the disk.

First a run of messages of 1 KiB is encoded as a group commit does it: records with their checksums, the
journal frame, one join. Then the whole of it: ``write``, ``publish`` in one queue or several, the
flush, and the acks with their flush. Prints CPU microseconds per message.

    .venv/bin/python -P benchmarks/micro/msg_store.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

from leveret.core.message import Message, origin_of
from leveret.msg_store.format import file_header, journal_records
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.journal_frames import DurablePosition, encode_frame
from leveret.msg_store.format.record_encoding import encode_run
from leveret.msg_store.memtable.memtables import Memtables
from leveret.msg_store.wal.group_commit import GroupCommit
from leveret.msg_store.wal.journal import Journal
from leveret.msg_store.wal.pending import Holds
from leveret.msg_store.wal.segment_writer import SegmentWriter

BODY = bytes(1024)
ORIGIN = origin_of(b"", b"queue")
MARK = DurablePosition(1, 1, 64)


def messages(count: int, share_head: bool) -> list[Message]:
    head = b"\x00\x3c\x00\x00" + (1024).to_bytes(8, "big") + b"\x10\x00\x02"
    heads = [head if share_head else head + index.to_bytes(2, "big") for index in range(count)]
    return [(ORIGIN, each, BODY) for each in heads]


def encode(run: list[Message], kind: int) -> None:
    extend = file_header.extender(kind)
    parts: list[bytes] = []
    count = len(run)
    items = list(enumerate([(message, (1,)) for message in run], 1 << 40))
    lengths = encode_run(items, 0, extend, 1, parts)
    b"".join(parts)
    publishes = journal_records.Publishes(
        1, 1, 1, 1, [each for each, _ in items], lengths, lengths, [1024] * count, None
    )
    records = [journal_records.encode_publishes(publishes)]
    records += journal_records.encode_acks(1, list(range(count)))
    encode_frame(records, 1, 1, MARK, extend, 1)


def measure(call: Callable[[], object], count: int, rounds: int = 7) -> float:
    best = float("inf")
    loops = max(1, 20_000 // count)
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(loops):
            call()
        best = min(best, time.process_time() - start)
    return best / loops / count * 1e6


def committed(
    count: int, queue_nos: tuple[int, ...], *, is_acked_first: bool
) -> Callable[[], None]:
    """Return a function that takes ``count`` messages through a group commit and out again."""
    identity = Identity(bytes(16), 1)
    holds = Holds()
    memtables = Memtables(holds.locations)
    rdq, journal = SegmentWriter(identity, 1), Journal(identity, 1, 1)
    core = GroupCommit(rdq, journal, holds, memtables, MARK, 1, lambda: 0)
    run = messages(count, share_head=True)
    seq = 1

    def flush() -> None:
        while not core.is_idle:
            core.start()
            core.finish(None, None)

    def once() -> None:
        nonlocal seq
        first = core.write(run, queue_nos)
        entries = [(first + index, 0) for index in range(count)]
        for queue_no in queue_nos:
            core.publish(queue_no, seq, entries)
        if not is_acked_first:
            flush()
        for queue_no in queue_nos:
            core.ack(queue_no, [(seq + n, first + n) for n in range(count)])
        flush()
        core.take_cancelled()
        seq += count

    return once


def main() -> None:
    print("records, publishes and acks of a batch of 1-KiB messages, CPU microseconds per message")
    for name, kind in (("crc32c", file_header.CRC32C), ("zlib.crc32", file_header.CRC32)):
        for count in (1, 10, 100, 1000):
            for share in (True, False):
                run = messages(count, share)
                cost = measure(lambda run=run, kind=kind: encode(run, kind), count)  # type: ignore[misc]
                heads = "one head" if share else "a head each"
                print(f"{name:11} batch {count:5} {heads:12} {cost:7.2f}")
    print("the whole of group commit, publish and ack")
    for acked_first, what in ((False, "on disk"), (True, "acked before the flush")):
        for queue_nos in ((1,), tuple(range(10))):
            for count in (1, 100, 1000):
                cost = measure(committed(count, queue_nos, is_acked_first=acked_first), count)
                print(f"{what:23} queues {len(queue_nos):3} batch {count:5} {cost:7.2f}")


if __name__ == "__main__":
    main()
