"""Each part of the memory is counted, and is gone when its owner is."""

from __future__ import annotations

import asyncio
from typing import Any

from leveret.amqp import methods as m
from leveret.management.memory_parts import memory_parts
from rigs.broker_rig import Rig


def parts(rig: Rig) -> dict[str, Any]:
    return asyncio.run(memory_parts(rig.node))


def test_parts_grow_with_what_clients_send_and_go_with_their_owners() -> None:
    rig = Rig()
    before = parts(rig)
    client = rig.session()
    text: Any = {"text": ("S", bytes(1_000))}
    client.ask(1, m.QueueDeclare("q", exclusive=True, arguments=text))
    client.ask(1, m.ExchangeDeclare("x", "direct", auto_delete=True, arguments=text))
    client.ask(1, m.QueueBind("q", "x", "k", False, text))
    client.feed(client.contents(1, ("x", "k", b"routed", {})))
    whole = client.contents(1, ("", "q", bytes(50_000), {}))
    client.feed(whole[:-10])
    client.wire.unread_bytes = 70_000

    grown = parts(rig)

    assert 3_000 < grown["metadata"]["/"] - before["metadata"]["/"] < 3_200
    assert 49_900 < grown["connection_readers"] < 50_100
    assert grown["connection_writers"] == 70_000
    assert 400 < grown["connection_channels"] < 2_000
    client.hang_up()
    assert parts(rig) == before
