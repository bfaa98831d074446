"""What clients of three busy nodes were answered can have happened one after the other; in virtual time."""

from __future__ import annotations

import pytest

from leveret.actors.runtime import scheduler
from rigs.topology_histories import judge
from rigs.virtual_histories import busy_histories

# Two declarations that differ were both answered ok (7, 25, 31, 34, 37, 52, 58); a publish has found a binding that was
# refused (1, 36), and none where one had been confirmed (51); a queue was lost to the news of the end of an earlier one
# of its name (3, 27); an exchange was deleted twice (25); an active declaration was told 404 (95); all waited for a
# queue of no node (96, 164); the deletion of a queue has taken along the next of its name (114).
SEEDS = (1, 3, 7, 25, 27, 31, 34, 36, 37, 51, 52, 58, 95, 96, 114, 164)
MORE = [pytest.param(each, marks=pytest.mark.slow) for each in range(200) if each not in SEEDS]


@pytest.mark.parametrize("seed", [*SEEDS, *MORE])
@pytest.mark.parametrize("is_durable", [True, False])
def test_what_clients_are_answered_has_an_order(
    seed: int, is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_FEW_MAILS", 1)
    monkeypatch.setattr(scheduler, "DRAIN_S", 0.0)
    for history in busy_histories(seed, is_durable).values():
        assert not judge(history)
