"""The states of a connection, the bytes that each of them reads, and the transitions.

=========  ===========================================================================================
state      bytes that are read
=========  ===========================================================================================
HEADER     the protocol header, eight bytes
HANDSHAKE  methods of channel 0 one by one, up to connection.open; each may change the frame size
OPENING    none; bytes are kept for RUNNING while the supervisor of the channels is started
RUNNING    runs for the channels and for channel 0
ENDING     none; the channels end, their messages go back, exclusive queues are deleted
CLOSING    channel 0: close-ok, and close once more; the client closes the socket
REFUSED    none; the client gets no answer for a while, which slows password guessing down
PARTING    none; the last frames are written, the peer gets some time to close the socket
CLOSED     none; the socket is closed and the reader ends
=========  ===========================================================================================

In any state the reader may be killed or the socket lost; then the reader ends, and the state no longer counts.
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
    """An event that takes a connection to its next state."""

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
    """Return the next state; SOCKET_CLOSED may come in every state."""
    if event is Event.SOCKET_CLOSED:
        return State.CLOSED
    following = TRANSITIONS[state].get(event)
    assert following is not None, f"{event.name} in state {state.name}"
    return following


class ConnectionState:
    """The state of one connection, shared by its reader, its input and its channel table."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = State.HEADER

    def enter(self, event: Event) -> None:
        self.now = after(self.now, event)
