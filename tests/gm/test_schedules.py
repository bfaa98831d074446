"""The guarantees, and rest afterwards, on random schedules in virtual time.

``Schedule(seed).run()`` repeats one; each test's first seed comes from ``--seed``.
"""

from __future__ import annotations

import pytest

from leveret.gm.ring.frames import Frame
from leveret.gm.wire import decode, encode
from rigs.gm.schedules import Schedule

BLOCKS = 10
SCHEDULES = 200  # per block, by default
MANY = 10_000


def judge(seeds: range) -> None:
    for seed in seeds:
        violations = Schedule(seed).run()
        assert not violations, f"Schedule({seed}).run() found {violations}"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_guarantees_hold_on_random_schedules(seed: int, block: int) -> None:
    judge(range(seed + block * SCHEDULES, seed + (block + 1) * SCHEDULES))


# Of a million; a second catch-up lacked what had been round since the first.
@pytest.mark.parametrize("found", [581_803, 685_460, 976_884])
def test_the_guarantees_hold_where_they_did_not(found: int) -> None:
    judge(range(found, found + 1))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_guarantees_hold_on_a_hundred_thousand_random_schedules(seed: int, block: int) -> None:
    judge(range(seed + block * MANY, seed + (block + 1) * MANY))


def test_the_guarantees_hold_when_frames_travel_as_bytes(seed: int) -> None:
    def carry(frame: Frame) -> Frame:
        return decode(b"".join(encode(frame)))

    for number in range(seed, seed + 50):
        schedule = Schedule(number, carry)
        assert schedule.run() == [], f"Schedule({number}, carry)"


def test_schedules_have_what_they_are_for(seed: int) -> None:
    """Members join, end and are cut off; messages are confirmed; deaths are reported."""
    kinds = {"joined", "changed", "published", "delivered", "confirmed", "ended"}
    seen: dict[str, int] = dict.fromkeys(kinds, 0)
    for number in range(seed, seed + 40):
        schedule = Schedule(number)
        schedule.run()
        for kind, count in schedule.ring.history.counts().items():
            seen[kind] += count

    assert all(count > 40 for count in seen.values()), seen


def test_a_schedule_is_repeated_by_its_seed(seed: int) -> None:
    once, again = Schedule(seed), Schedule(seed)
    once.run()
    again.run()

    assert once.ring.history.events() == again.ring.history.events()
    assert once.ring.network.frames == again.ring.network.frames
