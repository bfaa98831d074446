"""The states of a channel: how it takes its client's input, and which event leads where.

=========  ===========================================================================================
state      input of the client
=========  ===========================================================================================
RUNNING    publishes, acks and methods are handled in order
ENDING     held; the channel leaves its queues: consumers go, unacked messages are requeued. Then
           it answers the client's channel.close and stops, or sends channel.close with its error
CLOSING    channel.close is answered with close-ok, close-ok stops the channel, all else is discarded
FAILED     discarded; the reader has the hard error and closes the connection with it
=========  ===========================================================================================

A channel is killed, or ends with its connection, in any state. With its connection it ends at once, or, while it
settles more deliveries than a turn's worth, behind the last of them.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class State(Enum):
    """Where a channel stands between channel.open and its end."""

    RUNNING = auto()
    ENDING = auto()
    CLOSING = auto()
    FAILED = auto()


class Event(Enum):
    """What takes a channel to its next state."""

    END_BEGINS = auto()  # a soft error, or the client's channel.close
    CLOSE_SENT = auto()  # channel.close
    HARD_ERROR = auto()


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.RUNNING: {Event.END_BEGINS: State.ENDING, Event.HARD_ERROR: State.FAILED},
    State.ENDING: {Event.CLOSE_SENT: State.CLOSING},
    State.CLOSING: {Event.HARD_ERROR: State.FAILED},  # a channel.close that cannot be decoded
    State.FAILED: {},
}


def after(state: State, event: Event) -> State:
    """Return the state that follows."""
    following = TRANSITIONS[state].get(event)
    assert following is not None, f"{event.name} in state {state.name}"
    return following
