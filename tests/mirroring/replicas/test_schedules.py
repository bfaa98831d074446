"""What was confirmed is kept, and replicas become equal again, on random schedules in virtual time.

``Schedule(seed).run()`` repeats one; each test's first seed comes from ``--seed``.
"""

from __future__ import annotations

import pytest

from rigs.mirroring.schedules import Schedule

BLOCKS = 10
SCHEDULES = 100  # per block


@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_confirmed_is_lost_on_random_schedules(seed: int, block: int) -> None:
    for each in range(seed + block * SCHEDULES, seed + (block + 1) * SCHEDULES):
        violations = Schedule(each).run()
        assert not violations, f"Schedule({each}).run() found {violations}"
