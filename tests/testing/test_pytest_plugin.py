"""The plugin as a project uses it: a pytest of its own, in a folder of its own, with real clients.

Tests: testing/broker.py, testing/expectations.py, testing/publish_hook.py,
    testing/queue_inspector.py, testing/seen_messages.py, testing/vhost.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"

CLIENT = """
import asyncio
from contextlib import contextmanager

import aio_pika
import pika
import pika.exceptions
import pytest


@contextmanager
def channel_at(url, **parameters):
    options = pika.URLParameters(url)
    for name, value in parameters.items():
        setattr(options, name, value)
    connection = pika.BlockingConnection(options)
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a project without tests."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.delenv("LEVERET_KERNEL", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\nasyncio_mode = auto\n"
        "asyncio_default_fixture_loop_scope = function\n"
    )
    return pytester


def run(project: pytest.Pytester, tests: str, *arguments: str) -> pytest.RunResult:
    project.makepyfile(test_service=CLIENT + tests)
    return project.runpytest_subprocess(*arguments, timeout=120)


BOTH_CLIENTS = """
def test_a_blocking_client(amqp_broker, amqp_url):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("orders")
        for number in range(3):
            options = pika.BasicProperties(content_type="text/plain", headers={"n": number})
            channel.basic_publish("", "orders", b"%d" % number, options)
        method = channel.basic_get("orders")[0]

        orders = amqp_broker.queue("orders")
        assert orders.bodies == [b"0", b"1", b"2"]
        assert [message.headers["n"] for message in orders.messages()] == [0, 1, 2]
        assert orders.messages()[0].properties["content_type"] == "text/plain"
        assert [message.is_unacked for message in orders.messages()] == [True, False, False]
        assert (orders.ready, orders.unacked, orders.depth, orders.consumers) == (2, 1, 3, 0)
        assert str(orders) == "queue 'orders' ready=2 unacked=1 consumers=0"

        channel.basic_ack(method.delivery_tag)
        orders.wait_until(lambda queue: queue.unacked == 0)


async def test_a_client_in_the_loop(amqp_broker, amqp_url):
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("orders")
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), "orders")
        assert amqp_broker.queue("orders").bodies == [b"hello"]
        message = await queue.get()
        await message.ack()


@pytest.mark.parametrize("number", range(20))
def test_each_test_has_a_vhost_of_its_own(amqp_broker, amqp_url, number):
    assert amqp_broker.queue_names() == []
    with channel_at(amqp_url) as channel:
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.topic", "a.#")
    assert amqp_broker.queue_names() == ["q"]
    assert amqp_broker.bindings() == [("amq.topic", "a.#", "q")]
    assert amqp_broker.queue("other").state == "missing"
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_blocking_and_other_clients(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    result = run(project, BOTH_CLIENTS, *workers)

    result.assert_outcomes(passed=22)


CLOCK = """
def test_a_message_expires_after_an_hour(amqp_broker, amqp_url, virtual_clock):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("q", arguments={"x-message-ttl": 3_600_000})
        channel.basic_publish("", "q", b"x")
        virtual_clock.advance(3_599)
        assert amqp_broker.queue("q").ready == 1
        virtual_clock.advance(1)
        assert amqp_broker.queue("q").ready == 0


def test_a_client_that_falls_silent_is_disconnected(amqp_url, virtual_clock):
    with channel_at(amqp_url, heartbeat=60) as channel:
        virtual_clock.advance(300)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            channel.queue_declare("q")


def test_a_client_without_heartbeats_outlasts_hours(amqp_url, virtual_clock):
    with channel_at(amqp_url) as channel:
        before_s = virtual_clock.now_s, virtual_clock.wall_s
        virtual_clock.advance(20_000)
        assert virtual_clock.now_s - before_s[0] == pytest.approx(20_000)
        assert virtual_clock.wall_s - before_s[1] == pytest.approx(20_000)
        channel.queue_declare("q")


def test_many_acks_one_by_one_need_no_time(amqp_url, virtual_clock):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("q")
        for number in range(300):
            channel.basic_publish("", "q", b"x")
        for number in range(300):
            channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
        assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_the_memory_of_the_machine_is_not_read_each_second(virtual_clock, monkeypatch):
    asked = []
    machine = "leveret.core.system.machine.Machine"
    monkeypatch.setattr(f"{machine}.total_bytes", lambda _: asked.append("total"))
    monkeypatch.setattr(f"{machine}.used_bytes", lambda _: asked.append("used") or 0)
    virtual_clock.advance(60)
    assert asked == 60 * ["used"]


def test_time_goes_by_itself_without_the_fixture(amqp_broker):
    assert not amqp_broker.clock.is_held
"""


def test_time_passes_as_the_test_says(project: pytest.Pytester) -> None:
    run(project, CLOCK).assert_outcomes(passed=6)


WRONG = """
def test_a_count(amqp_broker, amqp_url):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("orders")
        assert amqp_broker.queue("orders").ready == 1


def test_a_clock(virtual_clock):
    assert virtual_clock.now_s == 0


def test_a_vhost(amqp_broker):
    assert amqp_broker.vhost == "mine"


def test_a_broker_that_has_stopped(amqp_broker, amqp_url):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("orders")
    queue = amqp_broker.queue("orders")
    amqp_broker.thread.stop()
    assert not queue


@pytest.mark.amqp_broker(durabel=True)
def test_a_misspelt_setting(amqp_broker):
    pass


@pytest.mark.amqp_broker("durable")
def test_a_setting_without_a_value(amqp_broker):
    pass


@pytest.mark.amqp_broker(message_bytes_max="1000")
def test_a_text_for_a_number(amqp_broker):
    pass
"""


def test_what_is_wrong_is_shown_by_name(project: pytest.Pytester) -> None:
    result = run(project, WRONG)

    result.assert_outcomes(failed=4, errors=3)
    result.stdout.fnmatch_lines(
        [
            "marker amqp_broker: unknown setting durabel; did you mean durable[?]",
            "marker amqp_broker takes NAME=VALUE, not 'durable'",
            'message_bytes_max is "1000"; allowed: 1 to *',
            "*where 0 = <queue 'orders' ready=0 unacked=0 consumers=0>.ready",
            "*<time of <broker at 127.0.0.1:*>, stands still>.now_s",
            "amqp_broker = <vhost 'test-*' of <broker at 127.0.0.1:*>>",
            "*assert not <queue 'orders': the broker is stopped>",
        ]
    )


EXPECTATIONS = """
def test_what_is_published_is_found(amqp_url, expect_published):
    with channel_at(amqp_url) as channel:
        channel.exchange_declare("orders", "topic")
        with expect_published("orders", "made", lambda m: m.json()["id"] == 7) as found:
            channel.basic_publish("orders", "made", b'{"id": 6}')
            channel.basic_publish("orders", "made", b'{"id": 7}')
        assert found[0].json() == {"id": 7}
        with expect_published(count=2, within_s=10) as found:
            channel.basic_publish("", "a", b"1")
            channel.basic_publish("", "b", b"2")
        assert [message.routing_key for message in found] == ["a", "b"]
        with expect_published("orders", count=0, within_s=0.01):
            channel.basic_publish("", "a", b"1")


async def test_in_a_loop(amqp_url, expect_published):
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        async with expect_published("", "q"):
            sending = asyncio.create_task(
                channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
            )
        await sending


def test_an_error_in_the_block_comes_first(expect_published):
    with pytest.raises(ZeroDivisionError):
        with expect_published():
            1 / 0


def test_what_is_not_published_fails(amqp_url, expect_published):
    with channel_at(amqp_url) as channel:
        channel.exchange_declare("orders", "topic")
        with expect_published("orders", "made", lambda m: m.json()["id"] == 7, within_s=0.01):
            channel.basic_publish("orders", "made", b'{"id": 6}')
            channel.basic_publish("orders", "lost", b'{"id": 7}')
            channel.basic_publish("", "made", b"x" * 100)
            channel.basic_publish("orders", "made", b"{")


def test_of_nothing_that_is_said(expect_published):
    with expect_published(within_s=0.01):
        pass


def test_too_many_fail(amqp_url, expect_published):
    with channel_at(amqp_url) as channel:
        with expect_published(count=0):
            channel.basic_publish("", "q", b"x")
"""


def test_expect_published(project: pytest.Pytester) -> None:
    result = run(project, EXPECTATIONS)

    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*expected a message to exchange 'orders' with routing key 'made' where <lambda>"
            " within 0.01 s, found 0",
            "*published meanwhile:",
            "*1. exchange='orders' routing_key='made'*: the predicate says no",
            "*2. exchange='orders' routing_key='lost'*: another routing key",
            "*3. exchange=''*... (100 bytes): another exchange",
            "*4. exchange='orders' routing_key='made'*: the predicate raised JSONDecodeError*",
        ]
    )
    result.stdout.fnmatch_lines(["*to any exchange*; nothing at all was published"])
    result.stdout.fnmatch_lines(["*expected 0 messages to any exchange*, found 1"])


CHAOS = """
seen = []


def test_a_test_that_fails_tells_what_was_done(amqp_url, chaos):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("orders")
        chaos.kill("queue:orders > amqqueue")
        channel.basic_publish("", "orders", b"x")
        print("chosen:", [chaos.random.random() for _ in range(3)])
        assert False


def test_a_vhost_that_is_down_is_no_matter_to_the_next_test(amqp_broker, chaos):
    for _ in range(3):
        chaos.kill(f"vhost:{amqp_broker.vhost} > queues_and_stores")
        chaos.paths("leveret")


def test_even_the_end_of_the_broker(amqp_broker, amqp_url, chaos):
    chaos.kill("leveret")
    with pytest.raises(pika.exceptions.AMQPError):
        with channel_at(amqp_url) as channel:
            channel.queue_declare("q")


def test_the_next_has_a_broker_again(amqp_url):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("q")
"""


def chosen(result: pytest.RunResult) -> str:
    return next(line for line in result.outlines if line.startswith("chosen:"))


def test_chaos_is_told_and_can_be_had_again(project: pytest.Pytester) -> None:
    first = run(project, CHAOS)

    first.assert_outcomes(passed=3, failed=1)
    first.stdout.fnmatch_lines(["*-- chaos --*", "chaos with seed *", "* s  kill *queue:orders*"])
    seed = re.search(r"repeat with: (--chaos-seed) (\d+)", first.stdout.str())
    assert seed is not None
    assert chosen(run(project, CHAOS, seed[1], seed[2])) == chosen(first)
    assert chosen(run(project, CHAOS, seed[1], "1")) != chosen(first)


SETTINGS = """
from pathlib import Path

from leveret.amqp.kernel import KERNEL_NAME


def test_from_the_file(amqp_broker):
    config = amqp_broker.broker.config
    assert KERNEL_NAME == "py"
    assert (config.message_bytes_max, config.cluster_name) == (1000, "tests")
    assert config.data_dir is None


@pytest.mark.amqp_broker(durable=True, message_bytes_max=2000)
def test_from_a_marker(amqp_broker, amqp_url):
    assert amqp_broker.broker.config.message_bytes_max == 2000
    with channel_at(amqp_url) as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"kept", pika.BasicProperties(delivery_mode=2))
        assert amqp_broker.queue("q").bodies == [b"kept"]


@pytest.mark.amqp_broker(data_dir="here")
class TestInAFolder:
    def test_one(self, amqp_broker):
        assert amqp_broker.broker.config.data_dir == Path(__file__).parent / "here"

    @pytest.mark.amqp_broker(durable=False)
    def test_the_nearest_marker_counts(self, amqp_broker):
        assert amqp_broker.broker.config.data_dir is None
"""


def test_settings_come_from_the_file_and_from_markers(project: pytest.Pytester) -> None:
    with Path("tox.ini").open("a") as ini:
        ini.write(
            "\nleveret_kernel = py\n"
            "leveret_config =\n  message_bytes_max = 1000\n  cluster_name = tests\n"
        )

    run(project, SETTINGS, "--strict-markers").assert_outcomes(passed=4)


DURABLE = """
@pytest.mark.parametrize("number", range(6))
def test_messages_are_on_disk(amqp_broker, amqp_url, number):
    with channel_at(amqp_url) as channel:
        channel.queue_declare("q", durable=True)
        for size in (10, 10_000):
            channel.basic_publish("", "q", b"x" * size, pika.BasicProperties(delivery_mode=2))
    assert [len(body) for body in amqp_broker.queue("q").bodies] == [10, 10_000]
"""


def test_each_worker_has_a_folder_of_its_own(project: pytest.Pytester) -> None:
    with Path("tox.ini").open("a") as ini:
        ini.write("\nleveret_data_dir = kept\n")

    run(project, DURABLE, "-n", "2").assert_outcomes(passed=6)

    assert sorted(folder.name for folder in Path("kept").iterdir()) == ["gw0", "gw1"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("leveret_kernel = rust", 'leveret_kernel is "rust"; allowed: c, py'),
        ("leveret_config = nothing", 'leveret_config: "nothing" is not FIELD = VALUE'),
        ("leveret_config = frame_max = 7", "frame_max"),
        ("leveret_config = frame_maks = 7", "unknown setting frame_maks; did you mean frame_max?"),
    ],
)
def test_a_wrong_setting_is_named(project: pytest.Pytester, line: str, error: str) -> None:
    with Path("tox.ini").open("a") as ini:
        ini.write(f"\n{line}\n")

    result = run(project, "def test_it(amqp_broker): pass")

    assert result.ret != 0
    assert error in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("module", ["leveret.testing.broker", "leveret.testing.chaos"])
def test_what_a_service_embeds_does_not_load_pytest(module: str, tmp_path: Path) -> None:
    program = f"import sys, {module}; sys.exit('pytest' in sys.modules)"

    subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, check=True)


def test_a_run_without_a_broker_does_not_load_one(project: pytest.Pytester) -> None:
    tests = "import sys\ndef test_it(): assert 'leveret.server.broker' not in sys.modules"
    project.makepyfile(tests)

    project.runpytest_subprocess().assert_outcomes(passed=1)
