"""Arguments of queues and consumers, against answers recorded from RabbitMQ 3.10.8.

Tests: broker/queue/equivalence.py, broker/registry/queue_types.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leveret.amqp.errors import PreconditionFailed, ProtocolError, ResourceLocked
from leveret.amqp.methods import ExchangeDeclare
from leveret.amqp.tables import Field, Table, typed
from leveret.broker.queue import arguments as queue_arguments
from leveret.broker.queue.equivalence import exchange_named
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.vhost import exchange_rules
from leveret.routing.exchange import Exchange

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "arguments-3.10.8.json").read_text()  # see README there
)
OURS = "invalid arg 'x-queue-type' for queue '$q' in vhost '/': \"unsupported queue type '{}'\""


def field(value: Any) -> Field:
    if isinstance(value, dict):
        return of_letter(value["!"], value["v"]) if "!" in value else ("F", table(value))
    if isinstance(value, list):
        return "A", [field(each) for each in value]
    letter, content = typed(value)
    return ("I" if letter == "l" and -(2**31) <= content < 2**31 else letter), content


def of_letter(letter: str, content: Any) -> Field:
    match letter:
        case "x":
            return letter, content.encode()
        case "D":
            return letter, tuple(content)
        case "t":
            return letter, bool(content)
    return letter, content


def table(values: dict[str, Any]) -> Table:
    return {name: field(value) for name, value in values.items()}


def recorded(kind: str) -> list[Any]:
    rows = [row for row in RECORDED if row["kind"] == kind]
    assert rows
    return [pytest.param(row, id=json.dumps(row.get("arguments", row.get("name")))) for row in rows]


def error_of(call: Any) -> str | None:
    try:
        call()
    except ProtocolError as error:
        return str(error)
    return None


def declare(row: dict[str, Any]) -> None:
    arguments, flags = table(row["arguments"]), row["flags"]
    exchange_named(arguments, "x-dead-letter-exchange", "queue '$q' in vhost '/'")
    queue_arguments.check(
        arguments, "/", "$q",
        durable="durable" in flags, exclusive="exclusive" in flags, auto_delete="auto_delete" in flags,
    )  # fmt: skip


@pytest.mark.parametrize("row", recorded("declare"))
def test_a_declare_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    expected = row["error"]
    kind = row["arguments"].get("x-queue-type")
    if expected is None and kind == "stream":
        expected = "PRECONDITION_FAILED - " + OURS.format(kind)  # it has them, Leveret has not

    assert error_of(lambda: declare(row)) == expected


@pytest.mark.parametrize("row", recorded("consume"))
def test_a_consume_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    arguments = table(row["arguments"])

    entry = QueueEntry("/", "$q")
    error = error_of(lambda: queue_arguments.check_consumer_arguments(arguments, entry))

    assert error == row["error"]


@pytest.mark.parametrize("row", recorded("queue again"))
def test_a_second_declare_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    owner: Any = object()
    entry = QueueEntry("/", "$q", exclusive=owner, arguments=table(row["arguments"]))

    def again() -> None:
        queue_arguments.check_equivalent(entry, False, False, owner, table(row["again"]))

    assert error_of(again) == row["error"]


@pytest.mark.parametrize("row", recorded("exchange again"))
def test_a_second_exchange_declare_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    exchange = Exchange("$e", "direct", auto_delete=True, arguments=table(row["arguments"]))
    method = exchange_declare("$e", auto_delete=True, arguments=table(row["again"]))

    error = error_of(lambda: exchange_rules.check_equivalent(exchange, method, "/"))

    assert error == row["error"]


def exchange_declare(name: str, **given: Any) -> ExchangeDeclare:
    values: dict[str, Any] = dict.fromkeys(
        ("passive", "durable", "auto_delete", "internal", "nowait"), False
    )
    return ExchangeDeclare(**{"exchange": name, "type": "direct", "arguments": {}} | values | given)


@pytest.mark.parametrize("row", recorded("queue name"))
def test_a_queues_name_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    assert error_of(lambda: exchange_rules.new_queue_name(row["name"])) == row["error"]


@pytest.mark.parametrize("row", recorded("exchange name"))
def test_a_new_exchanges_name_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    name = exchange_rules.strip_crlf(row["name"])

    assert error_of(lambda: exchange_rules.check_new_name(name)) == row["error"]


@pytest.mark.parametrize("row", recorded("exchange delete"))
def test_deleting_a_system_exchange_is_answered_as_rabbitmq_answers(row: dict[str, Any]) -> None:
    name = exchange_rules.strip_crlf(row["name"])

    assert error_of(lambda: exchange_rules.check_deletable(name, "/")) == row["error"]


@pytest.mark.parametrize(
    ("durable", "auto_delete", "text"),
    [
        (True, False, "'durable' for queue 'q' in vhost 'v': received 'true' but current is 'false'"),
        (False, True, "'auto_delete' for queue 'q' in vhost 'v': received 'true' but current is 'false'"),
        (True, True, "'durable' for queue 'q' in vhost 'v': received 'true' but current is 'false'"),
    ],
)  # fmt: skip
def test_other_properties_of_a_queue_are_refused(
    durable: bool, auto_delete: bool, text: str
) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        queue_arguments.check_equivalent(QueueEntry("v", "q"), durable, auto_delete, None, {})

    assert str(refused.value) == f"PRECONDITION_FAILED - inequivalent arg {text}"


def test_an_exclusive_queue_is_the_same_only_for_its_owner_and_exclusive_again() -> None:
    mine: Any = object()
    other: Any = object()
    text = (
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost 'v'. It could be "
        "originally declared on another connection or the exclusive property value does not match "
        "that of the original declaration."
    )

    queue_arguments.check_equivalent(QueueEntry("v", "q", exclusive=mine), False, False, mine, {})
    for entry, owner in (
        (QueueEntry("v", "q", exclusive=mine), other),
        (QueueEntry("v", "q", exclusive=mine), None),
        (QueueEntry("v", "q"), mine),
    ):
        with pytest.raises(ResourceLocked) as refused:
            queue_arguments.check_equivalent(entry, True, True, owner, {"x-expires": ("I", 1)})
        assert str(refused.value) == text


@pytest.mark.parametrize("value", [("S", b"nosuch"), ("S", b""), ("I", 5), ("V", None)])
def test_a_bad_master_locator_is_refused_where_rabbitmq_crashes(value: Field) -> None:
    with pytest.raises(PreconditionFailed, match=r"invalid_queue_locator_arg$"):
        queue_arguments.check({"x-queue-master-locator": value}, "/", "q", durable=True)

    good: Table = {"x-queue-master-locator": ("S", b"min-masters")}
    queue_arguments.check(good, "/", "q", durable=True)


def test_credit_that_is_no_table_is_refused_where_rabbitmq_crashes() -> None:
    with pytest.raises(
        PreconditionFailed, match=r"'x-credit' .*: \{unacceptable_type,signedint\}$"
    ):
        queue_arguments.check_consumer_arguments({"x-credit": ("I", 5)}, QueueEntry("/", "q"))


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_name_made_by_the_server_is_for_classic_queues_only(kind: str) -> None:
    name = exchange_rules.new_queue_name("")

    with pytest.raises(PreconditionFailed) as refused:
        queue_arguments.check({"x-queue-type": ("S", kind.encode())}, "/", name, durable=False)

    assert str(refused.value) == (
        f"PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_{kind}_queue"
    )
    queue_arguments.check({"x-queue-type": ("S", b"classic")}, "/", name, durable=False)


def test_text_that_erlang_would_not_print_is_shown_as_numbers() -> None:
    with pytest.raises(PreconditionFailed, match=r": \[117,110,115,.*,39,226,134,146,39\]$"):
        queue_arguments.check({"x-queue-mode": ("S", "→".encode())}, "/", "q", durable=True)


@pytest.mark.parametrize(
    ("arguments", "priority"),
    [({}, 0), ({"x-priority": ("b", -5)}, -5), ({"x-priority": ("l", 2**40)}, 2**40), ({"x-a": ("I", 1)}, 0)],
)  # fmt: skip
def test_the_priority_of_a_consumer_comes_back(arguments: Table, priority: int) -> None:
    assert queue_arguments.check_consumer_arguments(arguments, QueueEntry("/", "q")) == priority


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, None), ({"x-dead-letter-exchange": ("S", b"")}, ""), ({"x-dead-letter-exchange": ("S", b"x")}, "x")],
)  # fmt: skip
def test_the_dead_letter_exchange_comes_back(arguments: Table, expected: str | None) -> None:
    assert exchange_named(arguments, "x-dead-letter-exchange", "queue 'q'") == expected


# Exchanges.


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"type": "fanout"}, "'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"),
        ({"durable": True}, "'durable' for exchange 'x' in vhost '/': received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'"),
    ],
)  # fmt: skip
def test_an_exchange_declared_otherwise_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        exchange_rules.check_equivalent(Exchange("x"), exchange_declare("x", **given), "/")

    assert str(refused.value) == f"PRECONDITION_FAILED - inequivalent arg {text}"


def test_the_exchanges_of_a_new_vhost() -> None:
    made = {(each.name, each.type, each.internal) for each in exchange_rules.default_exchanges()}

    assert made == {
        ("", "direct", False),
        ("amq.direct", "direct", False),
        ("amq.fanout", "fanout", False),
        ("amq.topic", "topic", False),
        ("amq.headers", "headers", False),
        ("amq.match", "headers", False),
        ("amq.rabbitmq.trace", "topic", True),
    }
    assert all(each.durable for each in exchange_rules.default_exchanges())


def test_the_default_exchange_is_not_operated_on() -> None:
    exchange_rules.refuse_default("x")

    assert error_of(lambda: exchange_rules.refuse_default("")) == (
        "ACCESS_REFUSED - operation not permitted on the default exchange"
    )


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_exchange_types_that_there_are(kind: str) -> None:
    exchange_rules.check_type(kind)

    assert error_of(lambda: exchange_rules.check_type(kind + "s")) == (
        f"COMMAND_INVALID - unknown exchange type '{kind}s'"
    )


def test_the_alternate_exchange_must_be_a_longstr() -> None:
    def alternate(field: Field) -> str | None:
        arguments = {"alternate-exchange": field}
        return exchange_named(arguments, "alternate-exchange", "exchange 'x' in vhost '/'")

    assert alternate(("S", b"ae")) == "ae"
    assert exchange_named({}, "alternate-exchange", "exchange 'x' in vhost '/'") is None
    assert error_of(lambda: alternate(("b", 1))) == (
        "PRECONDITION_FAILED - invalid type 'byte' for arg 'alternate-exchange' "
        "in exchange 'x' in vhost '/'"
    )


# Names.


def test_names_made_here_are_sixteen_random_bytes() -> None:
    def fixed(count: int) -> bytes:
        return b"\xfb\xff" * (count // 2)

    assert exchange_rules.new_queue_name("\r\n", fixed) == "amq.gen--__7__v_-__7__v_-__7_w"
    assert exchange_rules.consumer_tag(fixed) == "amq.ctag--__7__v_-__7__v_-__7_w"
    assert len({exchange_rules.consumer_tag() for _ in range(100)}) == 100


def test_line_breaks_are_taken_out_of_names() -> None:
    assert exchange_rules.new_queue_name("sp.a\nb\r") == "sp.ab"
    assert exchange_rules.new_queue_name("amq") == "amq"
