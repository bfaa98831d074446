"""Actors of a running node die under load: nothing confirmed is lost, the clients stay."""

from __future__ import annotations

import asyncio

import pytest

from chaos.rig import Chaos
from durable.history import check_contents, loaded
from leveret.actors.runtime.ref import Ref
from rigs.waiting import eventually

PATHS = {
    "backing": ("queue:kept", "backing"),
    "amqqueue": ("queue:consumed", "amqqueue"),
    "the store": ("queues_and_stores", "msg_store"),
    "all queues": ("queues_and_stores", "queues"),
}


def found(chaos: Chaos, victim: str) -> list[Ref]:
    """Return it, unless it is being started."""
    nodes = [node for node in chaos.nodes() if node.labels[-2:] == PATHS[victim]]
    return [node.ref for node in nodes if node.ref is not None]


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("victim", PATHS)
async def test_killed_actors_lose_nothing_that_was_confirmed(
    chaos: Chaos, victim: str, how: str
) -> None:
    await survives(chaos, victim, how, 3)


@pytest.mark.slow
@pytest.mark.parametrize("victim", PATHS)
async def test_fifty_killed_actors_lose_nothing_that_was_confirmed(
    chaos: Chaos, victim: str
) -> None:
    await survives(chaos, victim, "kill", 50)


async def survives(chaos: Chaos, victim: str, how: str, deaths: int) -> None:
    channel = await chaos.channel()
    load, history = await asyncio.to_thread(loaded, channel, chaos.broker.addresses[0])
    for _ in range(deaths):
        await asyncio.to_thread(load.wait_for, len(history.confirmed) + 150)
        await eventually(lambda: found(chaos, victim))
        getattr(chaos, how)(found(chaos, victim)[0])
        chaos.clock.skip(400.0)
    await asyncio.to_thread(load.wait_for, len(history.confirmed) + 150)
    await asyncio.to_thread(load.settle)
    await asyncio.to_thread(load.stop)
    await eventually(lambda: found(chaos, "backing") and found(chaos, "amqqueue"))  # both queues

    await asyncio.to_thread(check_contents, channel, history)
