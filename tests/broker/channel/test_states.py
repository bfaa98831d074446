"""The table of a channel's states.

Tests: broker/channel/methods.py
"""

from __future__ import annotations

import pytest

from leveret.broker.channel.states import TRANSITIONS, Event, State, after


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    reached = {state for following in TRANSITIONS.values() for state in following.values()}

    assert set(TRANSITIONS) == set(State)
    assert reached | {State.RUNNING} == set(State)


def test_a_channel_with_an_error_says_so_after_it_has_left_its_queues() -> None:
    state = after(after(State.RUNNING, Event.END_BEGINS), Event.CLOSE_SENT)

    assert state is State.CLOSING
    assert after(state, Event.HARD_ERROR) is State.FAILED


def test_an_event_that_a_state_does_not_know_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="CLOSE_SENT in state RUNNING"):
        after(State.RUNNING, Event.CLOSE_SENT)
