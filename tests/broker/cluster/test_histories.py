"""What clients of three busy nodes were answered can have happened one after the other; in virtual time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from leveret.actors.runtime import scheduler
from leveret.broker.vhost import queue_declare
from leveret.broker.vhost.queue_declare import CLIENT_LOCAL, RANDOM
from rigs.cluster.topology_histories import judge
from rigs.cluster.virtual_histories import busy_histories

# Found so far: two declarations that differ, both answered ok (31); a publish that followed a binding that was refused,
# or none where one was confirmed; a queue lost to the news of the end of an earlier one of its name; an exchange
# deleted twice; an active declaration told 404; a queue that no node runs; a deleted exchange that came back, as a
# client had waited for its row (166); a binding told 541 (102) or refused although it had been there (20);
# an unbinding answered before it was written, as the put that had cancelled it was refused (128).
SEEDS = (*range(12), 20, 25, 31, 51, 95, 102, 110, 128, 135, 161, 164, 166)
# With queues on any node: one that was deleted before the answer of its node came was declared once more.
SPREAD = (32, 65, 71, 78)


def more_than(some: tuple[int, ...]) -> list[Any]:
    """Return these seeds and slow tests with others."""
    slow = [pytest.param(each, marks=pytest.mark.slow) for each in range(200) if each not in some]
    return [*some, *slow]


@pytest.mark.parametrize("seed", more_than(SEEDS))
@pytest.mark.parametrize("is_durable", [True, False])
def test_what_clients_are_answered_has_an_order(
    seed: int, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(monkeypatch, seed, is_durable)


@pytest.mark.parametrize("seed", more_than(SPREAD))
@pytest.mark.parametrize("is_durable", [True, False])
def test_it_has_one_where_queues_are_on_any_node(
    seed: int, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(monkeypatch, seed, is_durable, RANDOM)


def check(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_durable: bool, locator: str = CLIENT_LOCAL
) -> None:
    monkeypatch.setattr(scheduler, "_FEW_MAILS", 1)
    monkeypatch.setattr(scheduler, "DRAIN_S", 0.0)
    monkeypatch.setattr(queue_declare, "random", Random(seed))
    for history in busy_histories(seed, is_durable, locator=locator).values():
        assert not judge(history)
