"""The states of a vhost, what clients and operators get in each, and the transitions.

==========  ===================================================  ==========  =============  =============
state       where the vhost stands                               new client  queue.declare  ``status``
==========  ===================================================  ==========  =============  =============
NEW         its actors were never started                        541         -              -
OPENING     its message store is being opened                    541         541            down (reason)
REOPENING   the same, after a store that was open                541         541            down (reason)
RECOVERING  the store is open, the queues are being started      541         declare-ok     down (reason)
RUNNING     all queues have been started                         open-ok     declare-ok     running
STOPPING    store or queues have ended, the other actors follow  541         541            as before
FAILED      the machine took it down; it is started again        541         320            down (reason)
DOWN        it failed too often; an operator may start it        541         320            down (reason)
STOPPED     it was deleted, or the node stops                    541, 530    320            -
==========  ===================================================  ==========  =============  =============

541 is ``INTERNAL_ERROR - access to vhost 'v' refused for user 'u': vhost 'v' is down``. In a cluster the clients of a
vhost that never served (``is_new``) wait instead, since another node may serve it already. Clients stay connected
while the store is opened again; when the supervisor ends they are closed with 320, ``CONNECTION_FORCED - vhost 'v' is
down``. ``node/outages.py`` has the reasons; the ``cluster_state`` of list_vhosts is ``running`` in RUNNING alone.

A vhost serves once all queues run: a message to a queue that does not run yet would be confirmed and lost. A store
that cannot be opened in OPENING ends the supervisor, and the next start comes after a pause; in REOPENING it is opened
again at once, until the supervisor's restarts are used up.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final


class State(Enum):
    """The state of a vhost between its first start and its deletion."""

    NEW = auto()
    OPENING = auto()
    REOPENING = auto()
    RECOVERING = auto()
    RUNNING = auto()
    STOPPING = auto()
    FAILED = auto()
    DOWN = auto()
    STOPPED = auto()


class Event(Enum):
    """An event that takes a vhost to its next state; the comments name the actors that report it."""

    STARTS = auto()  # VhostSup; after a crash QueueStarter
    STORE_OPENED = auto()  # QueueStarter
    QUEUES_STARTED = auto()  # QueueStarter
    PART_ENDED = auto()  # StoreServer and QueuesSup, when they end
    MACHINE_FAILED = auto()  # VhostSup, when it ends; so the next two
    RESTARTS_USED_UP = auto()
    STOPPED = auto()


_ENDS: Final = {
    Event.MACHINE_FAILED: State.FAILED,
    Event.RESTARTS_USED_UP: State.DOWN,
    Event.STOPPED: State.STOPPED,
}
_OPENS: Final = {Event.STORE_OPENED: State.RECOVERING, **_ENDS}
_AGAIN: Final = {Event.STARTS: State.REOPENING, Event.PART_ENDED: State.STOPPING, **_ENDS}

TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.NEW: {Event.STARTS: State.OPENING},
    State.OPENING: {Event.STARTS: State.OPENING, **_OPENS},
    State.REOPENING: {Event.STARTS: State.REOPENING, **_OPENS},
    State.RECOVERING: {Event.QUEUES_STARTED: State.RUNNING, **_AGAIN},
    State.RUNNING: _AGAIN,
    State.STOPPING: _AGAIN,
    State.FAILED: {Event.STARTS: State.OPENING},
    State.DOWN: {Event.STARTS: State.OPENING},
    State.STOPPED: {},
}

ENDED: Final = frozenset({State.NEW, State.FAILED, State.DOWN, State.STOPPED})  # no supervisor
UP: Final = frozenset({State.RECOVERING, State.RUNNING})  # queues can be started


def after(state: State, event: Event) -> State:
    """Return the next state; PART_ENDED may come in every state, and changes nothing unless the vhost was up."""
    following = TRANSITIONS[state].get(event, state if event is Event.PART_ENDED else None)
    assert following is not None, f"{event.name} in state {state.name}"
    return following


class VhostState:
    """The state of one vhost, and the callbacks that wait for its start.

    Attributes:
        is_new: it has never served; its first start is under way, about to be, or is tried again.
        on_change: called in each new state.
    """

    def __init__(self) -> None:
        self.now = State.NEW
        self.is_new = True
        self.on_change: Callable[[], object] = lambda: None
        self._waiting: list[Callable[[], object]] = []

    @property
    def is_starting(self) -> bool:
        """Whether the supervisor runs and the vhost does not serve yet."""
        return self.now is not State.RUNNING and self.now not in ENDED

    def enter(self, event: Event) -> None:
        """Enter the state that follows an event; at the end of a start call the callbacks that wait for it."""
        before, self.now = self.now, after(self.now, event)
        if self.now is before:
            return
        self.is_new = self.is_new and self.now is not State.RUNNING
        self.on_change()
        if not self.is_starting:
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then()

    def when_started(self, then: Callable[[], object]) -> None:
        """Call when the vhost serves, or its supervisor has ended."""
        if self.is_starting:
            self._waiting.append(then)
        else:
            then()
