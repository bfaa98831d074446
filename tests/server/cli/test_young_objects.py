"""Objects that replace others one for one do not pile up before the collector."""

from __future__ import annotations

import asyncio
import gc

import pytest

from leveret.server.cli import young_objects
from leveret.server.cli.young_objects import collect_young

COUNT = 100_000


async def test_objects_that_replaced_others_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(young_objects, "PAUSE_S", 0)
    gc.collect()
    held: list[object] = [[] for _ in range(COUNT)]
    gc.collect()
    for number in range(COUNT):
        held[number] = []
    before = len(gc.get_objects(generation=0))
    collecting = asyncio.create_task(collect_young())
    await asyncio.sleep(0)
    collecting.cancel()

    assert before >= COUNT
    assert len(gc.get_objects(generation=0)) < COUNT // 10


async def test_objects_that_live_longer_do_not_pile_up_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The middle generation is collected when the youngest has been a few times, whoever collected it."""
    monkeypatch.setattr(young_objects, "PAUSE_S", 0)
    gc.collect()
    collecting = asyncio.create_task(collect_young())
    held: list[object] = []
    longest = 0
    for _ in range(20):
        held += [[] for _ in range(1_000)]
        await asyncio.sleep(0)
        longest = max(longest, len(gc.get_objects(generation=1)))
    collecting.cancel()

    assert len(held) == 20_000
    assert longest < 6_000
