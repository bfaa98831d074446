"""The table of a connection's states."""

from __future__ import annotations

import pytest

from leveret.broker.connection.states import TRANSITIONS, Event, State, after


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    reached = {state for following in TRANSITIONS.values() for state in following.values()}

    assert set(TRANSITIONS) == set(State)
    assert reached | {State.HEADER, State.CLOSED} == set(State)


@pytest.mark.parametrize("state", State)
def test_a_socket_is_closed_in_any_state(state: State) -> None:
    assert after(state, Event.SOCKET_CLOSED) is State.CLOSED


def test_a_connection_is_opened_and_closed_step_by_step() -> None:
    state = State.HEADER
    for event in (
        Event.HEADER_ACCEPTED,
        Event.VHOST_OPENED,
        Event.CHANNELS_READY,
        Event.END_BEGINS,
        Event.CLOSE_SENT,
    ):
        state = after(state, event)

    assert state is State.CLOSING


def test_an_event_that_a_state_does_not_know_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="VHOST_OPENED in state RUNNING"):
        after(State.RUNNING, Event.VHOST_OPENED)
