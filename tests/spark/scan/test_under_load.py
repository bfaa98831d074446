"""Snapshots of a broker at 10,000 messages a second whose collector merges and removes segments, read meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.file_header import HEADER_BYTES, MOVED, RDQ_MAGIC, decode_header
from leveret.server.perf.verify import HEAD, ConsumerCheck, QueueLedger, Violations
from rigs.nodes import BrokerUnderTest, clean_environment, leveret_program, serving
from rigs.spark.snapshots import snapshot_of, table_of
from rigs.waiting import wait_until
from rigs.wire.channels import channel_of

RATE = 10_000
MESSAGES = 60 * RATE
BODY_BYTES = 1024
QUEUES = [f"perf-{number}" for number in range(10)]  # the last one has no consumer
WITHIN_S = 600.0  # for a machine with much else to do
BEHIND = 3  # segments are written before the consumers come


@contextmanager
def perf(folder: Path, broker: BrokerUnderTest, words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``leveret perf`` over declared queues in a process of its own."""
    command = [leveret_program(), "perf", "-h", broker.url, "-p", "-qp", "perf-%d", *words.split()]
    command += ["--stall", str(WITHIN_S), "-ct", str(WITHIN_S)]
    process = subprocess.Popen(
        command, cwd=folder, env=clean_environment(), stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def check_rows(path: Path) -> dict[str, int]:
    """Check each message of a snapshot, and that none is missing between two; return how many queues have."""
    rows = table_of(path, columns="queue,seq_id,body").sort_by(
        [("queue", "ascending"), ("seq_id", "ascending")]
    )
    violations = Violations()
    checks = {queue: ConsumerCheck(QueueLedger(queue, violations), violations) for queue in QUEUES}
    numbers: dict[str, list[int]] = {queue: [] for queue in QUEUES}
    for queue, body in zip(rows["queue"].to_pylist(), rows["body"].to_pylist(), strict=True):
        checks[queue].take(body, is_redelivered=False)
        numbers[queue].append(HEAD.unpack_from(body)[1])
    assert not violations, violations.texts
    for queue, found in numbers.items():
        first = 0 if queue == QUEUES[-1] or not found else found[0]
        assert found == list(range(first, first + len(found))), f"{queue} has gaps"
    return {queue: len(found) for queue, found in numbers.items()}


def segments_of(broker: BrokerUnderTest) -> tuple[int, set[int]]:
    """Return the highest number of a segment that there is, and those that the collector has made."""
    assert broker.data is not None
    numbers, made = [0], set[int]()
    for path in broker.data.glob("vhosts/*/rdq/*.rdq"):
        numbers.append(int(path.stem, 16))
        with suppress(FileNotFoundError, Corrupt), path.open("rb") as file:  # removed, or just made
            if decode_header(file.read(HEADER_BYTES), RDQ_MAGIC).flags & MOVED:
                made.add(numbers[-1])
    return max(numbers), made


@pytest.mark.slow
def test_no_row_is_bad_while_a_broker_writes_and_collects(
    tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    with serving(tmp_path) as broker:
        assert broker.data is not None
        with channel_of(broker) as channel:
            for queue in QUEUES:
                channel.ok("queue.declare", queue=queue, durable=True)
        report = tmp_path / "published.json"
        publishing = f"-x 10 -y 0 -qpf 0 -qpt 9 -e= -f persistent -s {BODY_BYTES} -c 500 -r {RATE // 10} -C {MESSAGES // 10}"
        consuming = f"-x 0 -y 9 -qpf 0 -qpt 8 -q 200 -R {RATE // 10} -D {MESSAGES // 10}"
        counts: list[dict[str, int]] = []
        made = set[int]()
        with perf(tmp_path, broker, f"{publishing} --json {report}") as publisher:
            wait_until(lambda: segments_of(broker)[0] >= BEHIND, within_s=WITHIN_S)
            with perf(tmp_path, broker, consuming):
                while publisher.poll() is None:
                    path = snapshot_of(broker.data, f"s{len(counts)}", timeout_s=WITHIN_S)
                    counts.append(check_rows(path))
                    made |= segments_of(broker)[1]
        counts.append(check_rows(snapshot_of(broker.data, "last", timeout_s=WITHIN_S)))

    published = json.loads(report.read_text())
    kept = [count[QUEUES[-1]] for count in counts]
    rate = published["sent_per_s"]
    record_property("published_per_s", rate)
    sys.stdout.write(f"{rate} published/s, {len(counts)} snapshots, copies {sorted(made)}\n")
    assert published["ok"], published["violation_texts"]
    assert published["confirmed"] == published["sent"]
    assert kept == sorted(kept)
    assert kept[-1] == published["sent"] // len(QUEUES)
    assert made, "the collector has merged nothing"
