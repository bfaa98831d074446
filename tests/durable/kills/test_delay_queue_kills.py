"""The actors of a delay queue, its store and its vhost's queues die: delayed messages come, none before its time."""

from __future__ import annotations

import aio_pika
import pytest

from chaos.rig import Chaos
from leveret.actors.runtime.ref import Ref
from leveret.routing.delayed import queue_of
from rigs.waiting import eventually

PATHS = {
    "backing": (f"queue:{queue_of('x')}", "backing"),
    "amqqueue": (f"queue:{queue_of('x')}", "amqqueue"),
    "the store": ("queues_and_stores", "msg_store"),
    "all queues": ("queues_and_stores", "queues"),
}
DELAYS_MS = (1, 50, 400, 900)
COUNT = 100
DEATHS = 3


def found(chaos: Chaos, victim: str) -> list[Ref]:
    """Return it, unless it is being started."""
    nodes = [node for node in chaos.nodes() if node.labels[-2:] == PATHS[victim]]
    return [node.ref for node in nodes if node.ref is not None]


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("victim", PATHS)
async def test_killed_actors_lose_no_delayed_message(chaos: Chaos, victim: str, how: str) -> None:
    connection = await aio_pika.connect(chaos.broker.url)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(
            "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        queue = await channel.declare_queue("q", durable=True)
        await queue.bind(exchange)
        due_s: dict[bytes, float] = {}
        came: set[bytes] = set()

        async def look(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            assert chaos.clock.wall_s() >= due_s[message.body]
            came.add(message.body)
            await message.ack()

        await queue.consume(look)
        for death in range(DEATHS):
            for number in range(COUNT):
                delay_ms, body = DELAYS_MS[number % len(DELAYS_MS)], b"%d.%d" % (death, number)
                message = aio_pika.Message(body, delivery_mode=2, headers={"x-delay": delay_ms})
                due_s[body] = chaos.clock.wall_s() + delay_ms / 1000
                try:
                    await exchange.publish(message, "k", timeout=10)
                except aio_pika.exceptions.DeliveryError:
                    del due_s[body]  # refused
            await eventually(lambda: found(chaos, victim))
            getattr(chaos, how)(found(chaos, victim)[0])
            chaos.clock.skip(400.0)  # so that supervisors forget the restart
        await eventually(lambda: came >= due_s.keys(), within_s=20.0)
