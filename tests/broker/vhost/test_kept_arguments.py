"""Arguments that clients send along with definitions are kept as the bytes that were sent."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from leveret.amqp import methods as m
from leveret.amqp.tables import Table
from leveret.metadata import tables
from rigs.broker_rig import Rig

FIELDS = 2_000
TIMES = 5


def table(number: int) -> Table:
    """Return arguments without an effect, all different."""
    return {f"{field:x}": ("l", field + number * FIELDS) for field in range(FIELDS)}


def request(what: str, number: int) -> m.Method:
    arguments = table(number)
    match what:
        case "queue":
            return m.QueueDeclare(f"q{number}", arguments=arguments)
        case "exchange":
            return m.ExchangeDeclare(f"x{number}", "direct", arguments=arguments)
        case "binding to a queue":
            return m.QueueBind("q", "amq.direct", "k", False, arguments)
        case "binding to an exchange":
            return m.ExchangeBind("amq.topic", "transient", "k", False, arguments)
        case _:
            return m.BasicConsume("q", f"tag {number}", arguments=arguments)


@pytest.mark.parametrize(
    "what", ["queue", "exchange", "binding to a queue", "binding to an exchange", "consumer"]
)
def test_large_arguments_take_hardly_more_memory_than_they_had_on_the_wire(
    rig: Rig, what: str
) -> None:
    client = rig.session()
    client.ask(1, m.QueueDeclare("q"))
    client.ask(1, m.ExchangeDeclare("transient", "direct"))  # else the rig's store keeps rows
    requests = [m.encode(request(what, number)) for number in range(TIMES)]
    sent_bytes = sum(map(len, requests))
    gc.collect()
    tracemalloc.start()
    try:
        for each in requests:
            client.feed(m.method_frame(1, each))
            client.take()
        gc.collect()
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert kept_bytes < 2 * sent_bytes  # decoded it would be 15 times as much


@pytest.mark.parametrize("what", ["bound", "unbound"])
def test_the_arguments_of_a_durable_binding_are_encoded_once_for_its_row(
    rig: Rig, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each time somebody asks for the row's key: a table may have 20,000 fields."""
    client = rig.session()
    client.ask(1, m.ExchangeDeclare("x", "headers", durable=True))
    client.ask(1, m.QueueDeclare("q", durable=True))
    arguments: Table = {"a": ("l", 1), "b": ("l", 2)}
    encoded = [0]
    encode = tables.encode_table

    def counted(table: Table) -> bytes:
        encoded[0] += 1
        return encode(table)

    if what == "unbound":
        client.ask(1, m.QueueBind("q", "x", "", arguments=arguments))
    monkeypatch.setattr(tables, "encode_table", counted)
    if what == "bound":
        client.ask(1, m.QueueBind("q", "x", "", arguments=arguments))
    else:
        client.ask(1, m.QueueUnbind("q", "x", "", arguments=arguments))

    assert encoded[0] <= (what == "bound")
