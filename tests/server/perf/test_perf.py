"""``leveret perf``: its options, its figures, and that no wrong of a broker passes.

Tests: server/perf/agents.py, server/perf/args.py, server/perf/command.py, server/perf/cpu.py,
    server/perf/latency.py, server/perf/report.py, server/perf/run.py, server/perf/scenario.py,
    server/perf/verify.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp import methods
from leveret.client.errors import BrokerError
from leveret.client.target import Target
from leveret.server.output.terminal import OutputClosedError
from leveret.server.perf import args, command, verify
from leveret.server.perf.agents import Producer
from leveret.server.perf.cpu import descendants, used_ns
from leveret.server.perf.latency import Histogram
from leveret.server.perf.report import Reporter
from leveret.server.perf.run import Run
from leveret.server.perf.verify import ConsumerCheck, LaneReader, QueueLedger, Violations
from rigs.faulty_broker import Batch, faulty_broker


async def run(uri: str, *options: str) -> dict[str, Any]:
    scenario = args.parse(["-h", uri, "--stall", "0.3", *options])
    return await Run(scenario, Reporter("test", is_quiet=True))()


# The verdict.


@pytest.mark.parametrize(
    "options",
    [
        ["-C", "500", "-s", "64", "-a", "-u", "q"],
        ["-C", "500", "-u", "q", "-q", "10"],
        ["-C", "500", "-u", "q", "-A", "7", "-y", "2"],
        ["-C", "300", "-u", "q", "-c", "10", "-f", "persistent"],
        ["-C", "300", "-u", "q", "-y", "0"],
        ["-C", "200", "-u", "q", "--vary", "-s", "100"],
        ["-C", "3", "-u", "q", "-s", "400000"],
        ["-C", "100", "-x", "3", "-X", "2", "-y", "2", "-Y", "2", "-u", "q"],
        ["-C", "20", "-r", "1000", "-R", "900", "-u", "q"],
        ["-z", "0.1", "-r", "500", "-u", "q"],
        ["-C", "20", "-D", "20", "-u", "q"],
        ["-C", "20", "-y", "0", "-e", "nothing-bound"],
    ],
)
async def test_an_honest_broker_passes(options: list[str]) -> None:
    async with faulty_broker() as uri:
        result = await run(uri, *options)

    assert result["ok"], result["violation_texts"]
    if "-C" in options:
        producers = 6 if "-X" in options else 1
        assert result["sent"] == int(options[1]) * producers
    if "0" not in options[:6]:
        assert result["received"] == result["sent"]
        assert result["latency_us"]["p50"] <= result["latency_us"]["max"]


async def test_a_publisher_at_a_rate_has_one_timer_however_many_confirms_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one more for each confirm, the program was late, and measured itself."""
    loop = asyncio.get_running_loop()
    call_later, waiting, most = loop.call_later, 0, 0

    def counted(delay_s: float, call: Any, *arguments: Any) -> asyncio.TimerHandle:
        if not isinstance(getattr(call, "__self__", None), Producer):
            return call_later(delay_s, call, *arguments)

        def due() -> None:
            nonlocal waiting
            waiting -= 1
            call()

        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        return call_later(delay_s, due)

    monkeypatch.setattr(loop, "call_later", counted)
    async with faulty_broker() as uri:
        result = await run(uri, "-C", "100", "-r", "1000", "-c", "50", "-u", "q")

    assert result["ok"], result["violation_texts"]
    assert most == 1


def swapped(batch: Batch) -> Batch:
    return batch[::-1] if len(batch) > 1 else batch


def one(change: Any) -> Any:
    """Do something to the second message of a run, once."""
    done: list[bool] = []

    def fault(batch: Batch) -> Batch:
        if done or len(batch) < 3:
            return batch
        done.append(True)
        return [*batch[:1], *change(*batch[1]), *batch[2:]]

    return fault


def with_body(flag: bool, message: Any, body: bytes) -> Batch:
    origin, head, old = message
    assert len(body) == len(old)
    return [(flag, (origin, head, body))]


FAULTS = {
    "lost": lambda: one(lambda flag, message: []),
    "duplicate": lambda: one(lambda flag, message: [(flag, message), (flag, message)]),
    "order": lambda: swapped,
    "body": lambda: one(lambda flag, message: with_body(flag, message, bytes(len(message[2])))),
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_wrong_done_to_messages_is_found(kind: str) -> None:
    async with faulty_broker(FAULTS[kind]()) as uri:
        result = await run(uri, "-C", "100", "-s", "40", "-u", "q", "-a")

    assert not result["ok"]
    assert result["violations"][kind] >= 1


@pytest.mark.parametrize("at", [0, 2, 10, 20, 38, 39])
async def test_every_byte_of_a_body_is_checked(at: int) -> None:
    def spoil(flag: bool, message: Any) -> Batch:
        body = bytearray(message[2])
        body[at] ^= 1
        return with_body(flag, message, bytes(body))

    async with faulty_broker(one(spoil)) as uri:
        result = await run(uri, "-C", "100", "-s", "40", "-u", "q", "-a")

    assert not result["ok"]


async def test_a_redelivered_message_is_no_duplicate() -> None:
    again = one(lambda flag, message: [(flag, message), (True, message)])
    async with faulty_broker(again) as uri:
        result = await run(uri, "-C", "100", "-u", "q", "-a")

    assert (result["ok"], result["redelivered"]) == (True, 1)


async def test_a_message_lost_on_its_way_to_the_queue_is_found_without_consumers() -> None:
    async with faulty_broker(FAULTS["lost"]()) as uri:
        result = await run(uri, "-C", "10", "-y", "0", "-u", "q")

    assert result["violations"] == {"lost": 1}


async def test_a_refused_publish_is_a_violation() -> None:
    async with faulty_broker(confirm=lambda tag: methods.BasicNack(tag, True)) as uri:
        result = await run(uri, "-C", "10", "-c", "5", "-u", "q", "-a")

    assert result["violations"]["nack"] == result["nacked"] == 10


async def test_a_missing_confirm_is_a_violation() -> None:
    async with faulty_broker(confirm=lambda tag: methods.BasicAck(1, False)) as uri:
        result = await run(uri, "-C", "2", "-c", "5", "-u", "q", "-a")

    assert result["violations"]["unconfirmed"] == 1


async def test_a_confirm_that_comes_too_late_is_a_violation() -> None:
    async with faulty_broker(confirm=lambda tag: methods.BasicAck(1, False)) as uri:
        result = await run(
            uri, "-C", "2", "-c", "5", "-u", "q", "-a", "-ct", "0.1", "--stall", "60"
        )

    assert result["violations"]["unconfirmed"] == 1


async def test_an_interrupted_run_is_settled() -> None:
    async with faulty_broker() as uri:
        scenario = args.parse(["-h", uri, "-u", "q", "-q", "10"])
        running = Run(scenario, Reporter("test", is_quiet=True))
        asyncio.get_running_loop().call_later(0.1, running.stop)

        result = await running()

    assert result["ok"], result["violation_texts"]
    assert result["received"] == result["sent"] > 0


async def test_publisher_and_consumers_in_processes_of_their_own() -> None:
    async with faulty_broker() as uri:
        words = ["-h", uri, "-p", "-u", "q", "-y", "0", "-r", "500", "--stall", "600"]
        publishing = Run(args.parse(words), Reporter("test", is_quiet=True))
        published = asyncio.ensure_future(publishing())

        consumed = await run(
            uri, "-p", "-u", "q", "-x", "0", "-D", "20", "-z", "60", "--stall", "60"
        )
        publishing.stop()
        result = await published

    assert (consumed["ok"], consumed["received"]) == (True, 20)
    assert result["ok"]
    assert result["took_s"] < 600, "it waited for messages that others have consumed"


async def test_a_confirm_of_nothing_is_a_violation() -> None:
    async with faulty_broker(confirm=lambda tag: methods.BasicAck(tag + 100, False)) as uri:
        result = await run(uri, "-C", "2", "-c", "5", "-u", "q", "-a")

    assert result["violations"]["confirm"] >= 1


async def test_a_close_by_the_broker_ends_the_run() -> None:
    closing = methods.ConnectionClose(320, "CONNECTION_FORCED - bye", 0, 0)
    async with faulty_broker(confirm=lambda tag: closing) as uri:
        with pytest.raises(BrokerError, match="320 CONNECTION_FORCED - bye"):
            await run(uri, "-C", "2", "-c", "5", "-u", "q", "-a")


# The command.


async def test_the_command_exits_by_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    async with faulty_broker() as uri:
        scenario = args.parse(["-h", uri, "-C", "50", "-u", "q", "-a", "--pid", "1"])
        assert await command._run(scenario) == 0
    assert "sent 50, received 50, confirmed 0: verified" in capsys.readouterr().out

    async with faulty_broker(FAULTS["duplicate"]()) as uri:
        scenario = args.parse(["-h", uri, "-C", "50", "-u", "q", "-a", "--json", "-"])
        assert await command._run(scenario) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["violations"] == {"order": 1, "duplicate": 1}


@pytest.mark.parametrize(
    ("options", "until"),
    [
        ([], "Ctrl-C"),
        (["-z", "1.5"], "1.5 s"),
        (["-C", "9", "-D", "8"], "9 messages of each publisher or 8 messages of each consumer"),
    ],
)
def test_the_target_and_the_end_are_told_first(
    options: list[str], until: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = args.parse(["-h", "amqp://hare:secret@h:1/v", *options])
    Reporter("a", is_quiet=False).begin(scenario)

    assert capsys.readouterr().out == f"id: a, target: amqp://h:1 vhost v as hare, until {until}\n"


async def test_a_run_without_an_end_ends_with_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        async with faulty_broker() as uri:
            scenario = args.parse(["-h", uri, "-u", "q", "-q", "10", "-i", "0.05"])
            running = asyncio.ensure_future(command._run(scenario))
            await asyncio.to_thread(os.read, read, 1000)  # its first line
            os.close(read)

            with pytest.raises(OutputClosedError):
                await running
    monkeypatch.undo()


def test_no_broker_exits_69_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["-h", "amqp://127.0.0.1:1", "-C", "1"]) == 69
    assert capsys.readouterr().err == (
        "leveret perf: cannot connect to 127.0.0.1:1: Connect call failed ('127.0.0.1', 1)\n"
    )


# Options.


def test_options_are_perftests() -> None:
    given = (
        "-h amqp://hare:p%40w@example:5673/%2Fv -x 2 -y 3 -X 4 -Y 5 -q 6 -Q 7 -s 80 -u a,b -e ex "
        "-t topic -k key -c 9 -r 10 -R 11 -a -A 12 -f persistent mandatory -z 13 -C 14 -D 15 "
        "--id name -i 2 -b 16 -M 8192 -ct 17 -ad false -qa x-max-length=5,x-queue-mode=lazy"
    )

    scenario = args.parse(given.split())

    assert scenario.target == Target("example", 5673, "hare", "p@w", "/v", False)
    assert (scenario.all_producers, scenario.all_consumers) == (8, 15)
    assert (scenario.prefetch, scenario.channel_prefetch, scenario.body_bytes) == (6, 7, 80)
    assert (scenario.queues, scenario.exchange, scenario.kind) == (("a", "b"), "ex", "topic")
    assert (scenario.routing_key, scenario.confirm) == ("key", 9)
    assert (scenario.rate, scenario.consumer_rate, scenario.autoack) == (10, 11, True)
    assert (scenario.ack_every, scenario.persistent, scenario.mandatory) == (12, True, True)
    assert (scenario.time_s, scenario.producer_messages, scenario.consumer_messages) == (13, 14, 15)
    assert (scenario.id, scenario.interval_s, scenario.heartbeat_s) == ("name", 2, 16)
    assert (scenario.frame_max, scenario.confirm_timeout_s) == (8192, 17)
    assert scenario.queue_arguments == {"x-max-length": 5, "x-queue-mode": "lazy"}
    assert scenario.auto_delete is False


def test_a_queue_pattern_counts_up() -> None:
    scenario = args.parse(["-qp", "perf-%03d", "-qpf", "8", "-qpt", "10"])

    assert scenario.queues == ("perf-008", "perf-009", "perf-010")


def test_without_a_rate_or_a_confirm_there_is_no_limit() -> None:
    scenario = args.parse([])

    assert (scenario.rate, scenario.confirm, scenario.exchange) == (0, 0, "direct")


@pytest.mark.parametrize(
    "options",
    [
        ["-h", "http://localhost"],
        ["-x", "-1"],
        ["-x", "0", "-y", "0"],
        ["-x", "0", "-u", "q"],
        ["-qp", "q%d"],
        ["-qp", "q", "-qpt", "2"],
        ["--bindings", "5", "-u", "q"],
        ["--consume-after", "-u", "q"],
        ["-p"],
        ["-t", "headers"],
        ["-f", "urgent"],
        ["-ad", "perhaps"],
        ["-qa", "x"],
        ["-A", "0"],
        ["extra"],
    ],
)
def test_options_that_make_no_sense_exit_64(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        args.parse(options)

    assert caught.value.code == 64
    assert capsys.readouterr().err.count("\n") == 1


def test_a_uri_without_a_host_names_this_machine() -> None:
    assert args.parse(["-h", "amqp://"]).target.host == "127.0.0.1"


# Parts.


@given(st.permutations(range(12)), st.lists(st.integers(0, 11)))
def test_a_lane_knows_each_number_once(order: list[int], again: list[int]) -> None:
    lane = LaneReader()
    seen: set[int] = set()

    for number in [*order[:6], *again, *order[6:]]:
        assert lane.take(number) == (number not in seen)
        seen.add(number)

    assert lane.count == len(seen)
    assert (lane.next, lane.ahead) == (12, set())


@given(
    st.integers(0, 65_535), st.integers(0, 2**32 - 1), st.integers(0, 2**63), st.integers(16, 3000)
)
def test_a_body_is_taken_for_what_it_is(lane: int, number: int, sent_ns: int, size: int) -> None:
    violations = Violations()
    check = ConsumerCheck(QueueLedger("q", violations), violations)
    head = verify.HEAD.pack(lane, number, sent_ns)
    body = head + verify.filler(size) + verify.CHECK.pack(crc32(head) & 0xFFFF)

    assert len(body) == size
    assert check.take(body, False) == sent_ns
    assert not violations


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200))
def test_percentiles_are_within_3_percent(times: list[int]) -> None:
    histogram = Histogram()
    for us in times:
        histogram.add(us)
    times.sort()

    for share, found in zip(
        (50.0, 99.0, 100.0), histogram.percentiles((50.0, 99.0, 100.0)), strict=True
    ):
        exact = times[max(1, -(-len(times) * int(share) // 100)) - 1]
        assert exact <= found <= exact * 1.032 + 1
    assert histogram.summary()["max"] == times[-1]
    assert histogram.summary()["min"] == times[0]


@given(st.lists(st.integers(0, 10_000)), st.lists(st.integers(0, 10_000)))
def test_histograms_add_up(first: list[int], second: list[int]) -> None:
    whole, one_part, other_part = Histogram(), Histogram(), Histogram()
    for us in first + second:
        whole.add(us)
    for us in first:
        one_part.add(us)
    for us in second:
        other_part.add(us)

    one_part.merge(other_part)

    assert one_part.summary() == whole.summary()
    assert one_part.count == whole.count


def test_an_empty_histogram_has_zeros() -> None:
    assert set(Histogram().summary().values()) == {0}


def test_cpu_time_is_that_of_the_process_and_its_children() -> None:
    import os

    before = used_ns([os.getpid()])
    sum(range(200_000))

    assert os.getpid() in descendants(os.getppid())
    assert used_ns([os.getpid()]) > before
