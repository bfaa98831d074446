"""When heartbeats go out and when the peer is gone."""

from __future__ import annotations

import pytest

from leveret.amqp.heartbeat import Heartbeat


def sent(heartbeat: Heartbeat, written: list[bool]) -> list[bool]:
    return [heartbeat.half_interval(has_written)[0] for has_written in written]


def looks_until_gone(heartbeat: Heartbeat, limit: int = 100) -> int:
    """Return after how many half intervals of silence the peer counts as gone."""
    for look in range(1, limit):
        if heartbeat.half_interval(has_written=False)[1]:
            return look
    return limit


def test_a_heartbeat_goes_every_half_interval_in_which_nothing_was_written() -> None:
    assert sent(Heartbeat(10), [False, False, True, False, True, True, False]) == (
        [True, True, False, True, False, False, True]
    )


def test_the_first_one_goes_whatever_was_written() -> None:
    assert sent(Heartbeat(10), [True, True]) == [True, False]


def test_a_peer_silent_from_the_start_is_gone_after_three_intervals() -> None:
    assert looks_until_gone(Heartbeat(1)) == 6


@pytest.mark.parametrize(("before", "after"), [(1, 5), (2, 6), (3, 5), (4, 6), (7, 5)])
def test_a_peer_that_falls_silent_is_gone_between_two_and_three_intervals_later(
    before: int, after: int
) -> None:
    heartbeat = Heartbeat(1)
    for _ in range(before):
        heartbeat.half_interval(has_written=True)
        heartbeat.received()

    assert looks_until_gone(heartbeat) == after
    assert 4 < after <= 6


def test_a_peer_that_sends_anything_once_per_interval_stays() -> None:
    heartbeat = Heartbeat(1)

    for look in range(200):
        if look % 2:
            heartbeat.received()
        assert not heartbeat.half_interval(has_written=True)[1]


def test_silence_means_nothing_while_the_connection_is_paused() -> None:
    heartbeat = Heartbeat(1)
    for _ in range(5):
        heartbeat.half_interval(has_written=True)

    paused = [heartbeat.half_interval(has_written=True, is_paused=True)[1] for _ in range(50)]

    assert not any(paused)
    assert looks_until_gone(heartbeat) == 6


@pytest.mark.parametrize("interval_s", [0, -1])
def test_an_interval_of_nothing_is_refused(interval_s: int) -> None:
    with pytest.raises(ValueError, match="heartbeat interval"):
        Heartbeat(interval_s)
