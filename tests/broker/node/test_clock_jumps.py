"""The wall clock jumps by a day, forth or back: expiry stays sane, nothing spins or crashes."""

from __future__ import annotations

import pytest

from leveret.broker import queue_requests
from rigs.queues.queue_rig import Rig, longs

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
TTL_MS = 3_600_000


@pytest.fixture
def rig() -> Rig:
    return Rig(arguments=longs(x_message_ttl=TTL_MS))


def jump_wall(rig: Rig, seconds: float) -> None:
    rig.settle()
    rig.clock.set_wall_s(rig.clock.wall_s() + seconds)


def test_a_day_forth_expires_what_was_to_expire_within_it(rig: Rig) -> None:
    channel = rig.channel()
    channel.publish(b"old")

    jump_wall(rig, DAY_S)
    channel.publish(b"new")
    channel.consume(b"c")

    assert channel.bodies() == [b"new"]


def test_a_day_back_keeps_what_would_have_expired_and_spins_on_nothing(rig: Rig) -> None:
    channel = rig.channel()
    channel.publish(b"old")

    jump_wall(rig, -DAY_S)
    rig.clock.jump(2 * HOUR_S)  # the timer fires, and is set again
    assert rig.stat() == (1, 0)
    assert rig.clock.pending_count == 1
    rig.clock.jump(DAY_S)

    assert rig.stat() == (0, 0)
    assert rig.clock.pending_count == 0


def test_what_came_after_a_day_back_expires_in_its_time(rig: Rig) -> None:
    channel = rig.channel()
    channel.publish(b"old")
    jump_wall(rig, -DAY_S)
    channel.publish(b"new")

    channel.ask(queue_requests.Get(channel.ref, True))
    rig.clock.jump(HOUR_S + 1)

    assert rig.stat() == (0, 0)


@pytest.mark.parametrize("days", [-20_000, -1, 1, 20_000])
def test_unused_queues_do_not_notice(days: int) -> None:
    rig = Rig(arguments=longs(x_expires=TTL_MS))
    rig.clock.jump(HOUR_S / 2)

    jump_wall(rig, days * DAY_S)
    rig.clock.jump(HOUR_S / 2 - 1)
    assert rig.deleted == []
    rig.clock.jump(2)

    assert rig.deleted == [rig.entry]


@pytest.mark.parametrize("days", [-1, 1])
def test_jumps_there_and_back_change_nothing(rig: Rig, days: int) -> None:
    channel = rig.channel()
    channel.publish(b"0")

    jump_wall(rig, days * DAY_S)
    jump_wall(rig, -days * DAY_S)
    rig.clock.jump(HOUR_S - 1)
    assert rig.stat() == (1, 0)
    rig.clock.jump(2)

    assert rig.stat() == (0, 0)
