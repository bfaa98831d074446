"""Policies, set by ``rabbitmqctl`` there and ``leveret ctl`` here: which policy applies, and its effect."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel, is_there
from rigs.nodes import BrokerUnderTest
from rigs.waiting import wait_until


class Policies:
    """The broker's command line for policies; what a test has set is cleared after it."""

    def __init__(self, broker: BrokerUnderTest, name: str) -> None:
        self.broker = broker
        self.made: set[tuple[str, str]] = set()
        self.name = name

    def set(self, short: str, pattern: str = "", kind: str = "policy", **options: Any) -> None:
        """Set a policy for names that begin with the test's own, followed by the pattern."""
        words = []
        for option in ("priority", "apply_to"):
            if option in options:
                words += [f"--{option.replace('_', '-')}", str(options.pop(option))]
        definition = json.dumps({key.replace("_", "-"): value for key, value in options.items()})
        name = f"{self.name}-{short}"
        self.broker.control(f"set_{kind}", *words, name, f"^{self.name}{pattern}", definition)
        self.made.add((kind, name))

    def clear(self, short: str, kind: str = "policy") -> None:
        name = f"{self.name}-{short}"
        self.made.discard((kind, name))
        self.broker.control(f"clear_{kind}", name)

    def refusal(self, *words: str) -> str:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            self.broker.control(*words)
        return str(refused.value.stderr)

    def of(self, queue: str, *columns: str) -> list[str]:
        """Return columns of a queue."""
        return self.table(*columns)[queue]

    def table(self, *columns: str) -> dict[str, list[str]]:
        """Return columns of the test's queues."""
        table = self.broker.control("list_queues", "name", *columns)
        rows = [line.split("\t") for line in table.splitlines()]
        return {row[0]: row[1:] for row in rows if row[0].startswith(self.name)}

    def listed(self, kind: str = "policies") -> list[dict[str, Any]]:
        table = self.broker.control(f"list_{kind}", "--formatter", "json")
        return [row for row in json.loads(table) if row["name"].startswith(self.name)]


@pytest.fixture
def policies(broker: BrokerUnderTest, name: str) -> Iterator[Policies]:
    tool = Policies(broker, name)
    yield tool
    for kind, each in tool.made:
        broker.control(f"clear_{kind}", each)


def test_the_strongest_that_fits_applies_to_what_is_there_and_what_comes(
    policies: Policies, channel: Channel, litter: Callable[..., None], name: str
) -> None:
    old, new, other = (f"{name}-{each}" for each in ("old", "new", "other"))
    litter(old, new, other)
    channel.ok("queue.declare", queue=old)
    policies.set("weak", "", priority=-1, message_ttl=60_000)
    policies.set("strong", "-(old|new)", priority=5, apply_to="queues", queue_mode="lazy")
    policies.set("not-classic", priority=9, queue_mode="lazy", max_age="1D")
    policies.set("not-queues", priority=10, apply_to="exchanges", alternate_exchange="amq.fanout")
    channel.ok("queue.declare", queue=new)
    channel.ok("queue.declare", queue=other)

    strong, weak = f"{name}-strong", f"{name}-weak"
    assert policies.table("policy") == {old: [strong], new: [strong], other: [weak]}
    policies.clear("strong")
    assert policies.table("policy") == {old: [weak], new: [weak], other: [weak]}
    policies.clear("weak")
    assert policies.of(old, "policy") == [""]


def test_policies_are_listed_as_they_were_set(policies: Policies, name: str) -> None:
    policies.set("b", "x", priority=3, apply_to="queues", queue_mode="lazy", message_ttl=5)
    policies.set("a", alternate_exchange="e")
    policies.set("o", kind="operator_policy", apply_to="queues", expires=70_000)

    assert policies.listed() == [
        {
            "vhost": "/", "name": f"{name}-a", "pattern": f"^{name}", "apply-to": "all",
            "definition": '{"alternate-exchange":"e"}', "priority": 0,
        },
        {
            "vhost": "/", "name": f"{name}-b", "pattern": f"^{name}x", "apply-to": "queues",
            "definition": '{"message-ttl":5,"queue-mode":"lazy"}', "priority": 3,
        },
    ]  # fmt: skip
    assert policies.listed("operator_policies") == [
        {
            "vhost": "/", "name": f"{name}-o", "pattern": f"^{name}", "apply-to": "queues",
            "definition": '{"expires":70000}', "priority": 0,
        }
    ]  # fmt: skip


def test_policies_are_exported_with_the_definitions(
    policies: Policies, broker: BrokerUnderTest, name: str
) -> None:
    policies.set("p", priority=3, apply_to="queues", queue_mode="lazy")
    policies.set("o", kind="operator_policy", apply_to="queues", expires=70_000)

    document = json.loads(broker.control("export_definitions", "-"))

    assert [each for each in document["policies"] if each["name"].startswith(name)] == [
        {
            "vhost": "/", "name": f"{name}-p", "pattern": f"^{name}", "apply-to": "queues",
            "definition": {"queue-mode": "lazy"}, "priority": 3,
        }
    ]  # fmt: skip
    pairs = broker.expected(rabbitmq=[["expires", 70_000]], leveret={"expires": 70_000})
    assert [each for each in document["parameters"] if each["name"].startswith(name)] == [
        {
            "vhost": "/", "component": "operator_policy", "name": f"{name}-o",
            "value": {
                "pattern": f"^{name}", "definition": pairs, "priority": 0, "apply-to": "queues",
            },
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("set_policy", "p", "a(", "{}"), 'is invalid: {"missing )",2}'),
        (("set_policy", "p", "a", "{"), "JSON decoding error. Reason: badarg"),
        (
            ("set_policy", "p", "a", '{"queue-mode":"x"}'),
            'Validation failed\n\n<<"x">> is not a valid queue-mode value\n',
        ),
        (
            ("set_operator_policy", "p", "a", '{"queue-mode":"lazy"}'),
            '[{<<"queue-mode">>,<<"lazy">>}] are not recognised policy settings\n',
        ),
        (("set_policy", "-p", "nowhere", "p", "a", '{"expires":1}'), "'nowhere' does not exist"),
        (("list_policies", "-p", "nowhere"), "'nowhere' does not exist"),
        (("clear_policy", "nothing"), "Error:\nParameter does not exist"),
    ],
)
def test_a_wrong_policy_command_is_refused_with_its_text(
    policies: Policies, words: tuple[str, ...], text: str
) -> None:
    assert text in policies.refusal(*words)


def test_of_policy_argument_and_operator_policy_the_least_ttl_holds(
    policies: Policies, channel: Channel, litter: Callable[..., None], name: str
) -> None:
    policies.set("p", message_ttl=3_600_000)
    long, short, both = (f"{name}-{each}" for each in ("long", "short", "both"))
    litter(long, short, both)
    channel.ok("queue.declare", queue=long)
    channel.ok("queue.declare", queue=short, arguments={"x-message-ttl": 1})
    channel.ok("queue.declare", queue=both, arguments={"x-message-ttl": 7_200_000})
    for queue in (long, short):
        channel.publish(queue, b"x")
    wait_until(lambda: not channel.ready(short))
    policies.set("o", "-both", kind="operator_policy", message_ttl=1)
    channel.publish(both, b"x")

    wait_until(lambda: not channel.ready(both))
    assert channel.ready(long) == 1
    policies.clear("o", "operator_policy")
    channel.publish(both, b"x")
    assert channel.ready(both) == 1


def test_an_expiry_that_comes_by_policy_deletes_the_unused_queue(
    policies: Policies, connect: Connect, queue: str
) -> None:
    policies.set("p", expires=1)
    witness = connect()

    wait_until(lambda: not is_there(witness, queue))


def test_an_alternate_exchange_by_policy_comes_and_goes(
    policies: Policies, channel: Channel, exchange: Callable[..., str], queue: str, name: str
) -> None:
    source, alternate = exchange("direct"), exchange("fanout")
    own = exchange("direct", arguments={"alternate-exchange": "nowhere"})
    channel.ok("queue.bind", queue=queue, exchange=alternate)
    for each in (source, own):
        channel.publish("k", b"lost", exchange=each)

    policies.set("p", "-x", apply_to="exchanges", alternate_exchange=alternate)
    for each in (source, own):
        channel.publish("k", b"kept", exchange=each)
    assert channel.ready(queue) == 1
    policies.clear("p")
    channel.publish("k", b"lost", exchange=source)

    assert channel.ready(queue) == 1
    assert channel.get(queue).body == b"kept"


# Modes.

LARGE = 5_000  # bytes; RabbitMQ keeps smaller messages in the queue index, which is in RAM
KINDS = pytest.mark.parametrize(
    ("is_durable", "arguments"),
    [(True, {}), (True, {"x-max-priority": 3})],
    ids=["durable", "priorities"],
)


def fill(channel: Channel, queue: str, first: int, end: int) -> None:
    for number in range(first, end):
        channel.publish(queue, b"%d" % number + b"." * LARGE, delivery_mode=1 + number % 2)


def got(channel: Channel, queue: str, count: int) -> list[int]:
    return [int(channel.get(queue).body.partition(b".")[0]) for _ in range(count)]


def in_ram(policies: Policies, queue: str) -> int:
    return int(policies.of(queue, "messages_ready_ram")[0])


@KINDS
def test_the_mode_of_a_queue_that_is_there_changes_with_the_policy_and_then_stays(
    policies: Policies, channel: Channel, queue: str, is_durable: bool, arguments: dict[str, int]
) -> None:
    channel.ok("queue.delete", queue=queue)
    channel.ok("queue.declare", queue=queue, durable=is_durable, arguments=arguments)
    fill(channel, queue, 0, 500)
    assert (channel.ready(queue), in_ram(policies, queue)) == (500, 500)

    policies.set("p", queue_mode="lazy")
    wait_until(lambda: in_ram(policies, queue) == 0)
    policies.clear("p")
    fill(channel, queue, 500, 600)
    assert (channel.ready(queue), in_ram(policies, queue)) == (600, 0)
    policies.set("p", queue_mode="default")
    fill(channel, queue, 600, 700)

    assert (channel.ready(queue), in_ram(policies, queue)) == (700, 100)
    assert got(channel, queue, 700) == list(range(700))


def test_the_argument_is_stronger_than_the_policy(
    policies: Policies, channel: Channel, litter: Callable[..., None], name: str
) -> None:
    for mode in ("lazy", "default"):
        policies.set(mode, f"-{mode}", queue_mode=mode)
    lazy = []
    for policy in ("lazy", "default", "no"):
        for argument in ("lazy", "default", None):
            for is_durable in (False, True):
                queue = f"{name}-{policy}-{argument}-{is_durable}"
                arguments = {} if argument is None else {"x-queue-mode": argument}
                channel.ok("queue.declare", queue=queue, durable=is_durable, arguments=arguments)
                litter(queue)
                fill(channel, queue, 0, 10)
                assert channel.ready(queue) == 10
                lazy += [queue] if (argument or policy) == "lazy" else []

    rows = policies.table("messages_ready_ram")
    assert {each: int(row[0]) for each, row in rows.items()} == {
        each: 0 if each in lazy else 10 for each in rows
    }
    assert len(rows) == 18
    assert all(got(channel, each, 10) == list(range(10)) for each in rows)
