"""The states of a connection: what each of them reads, and which event leads where.

=========  ===========================================================================================
state      what is read
=========  ===========================================================================================
HEADER     the protocol header, eight bytes
HANDSHAKE  methods of channel 0 one by one, up to connection.open; each may change the frame size
OPENING    nothing; bytes are kept for RUNNING while the supervisor of the channels is started
RUNNING    runs for the channels and for channel 0
ENDING     nothing; the channels end, their messages go back, exclusive queues are deleted
CLOSING    channel 0: close-ok, and close once more; the client closes the socket
REFUSED    nothing; the client is left without an answer for a while, which slows guessing down
PARTING    nothing; the last word is written, the peer gets some time to close the socket
CLOSED     nothing; the socket is closed and the reader ends
=========  ===========================================================================================

A connection is killed, or loses its socket, in any state; then its reader ends and the state no longer counts.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class State(Enum):
    """Where a connection stands between the accepted socket and the closed one."""

    HEADER = auto()
    HANDSHAKE = auto()
    OPENING = auto()
    RUNNING = auto()
    ENDING = auto()
    CLOSING = auto()
    REFUSED = auto()
    PARTING = auto()
    CLOSED = auto()


class Event(Enum):
    """What takes a connection to its next state."""

    HEADER_ACCEPTED = auto()
    HEADER_REFUSED = auto()
    LOGIN_REFUSED = auto()
    VHOST_OPENED = auto()
    CHANNELS_READY = auto()
    END_BEGINS = auto()  # an error, an operator, or the client's connection.close
    CLOSE_SENT = auto()  # connection.close or close-ok
    SOCKET_CLOSED = auto()


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.HEADER: {Event.HEADER_ACCEPTED: State.HANDSHAKE, Event.HEADER_REFUSED: State.PARTING},
    State.HANDSHAKE: {
        Event.LOGIN_REFUSED: State.REFUSED,
        Event.CLOSE_SENT: State.CLOSING,
        Event.VHOST_OPENED: State.OPENING,
    },
    State.OPENING: {Event.CHANNELS_READY: State.RUNNING, Event.CLOSE_SENT: State.CLOSING},
    State.RUNNING: {Event.END_BEGINS: State.ENDING},
    State.ENDING: {Event.CLOSE_SENT: State.CLOSING},
    State.CLOSING: {},
    State.REFUSED: {},
    State.PARTING: {},
    State.CLOSED: {},
}


def after(state: State, event: Event) -> State:
    """Return the state that follows; a socket is closed in any."""
    if event is Event.SOCKET_CLOSED:
        return State.CLOSED
    following = TRANSITIONS[state].get(event)
    assert following is not None, f"{event.name} in state {state.name}"
    return following
