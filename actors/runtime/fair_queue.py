"""The fair queue: long turns of work wait in it by account, and the accounts share the time equally.

Each account has a line of places. ``take`` returns the first place of the line whose account has had the least time,
and ``charge`` adds the time of that turn to the account. So an account with a thousand places gets as much time as an
account with one. Short work that passes from actor to actor waits for one long turn, not for a long turn at each step.
Accounts that have had the same time take turns. Within a line, places are taken in the order of their arrival. Linux'
CFS and start-time fair queueing (Goyal, Vin, Cheng 1996) schedule like this. A new line starts with the time of the
account taken last, so that an idle account saves no time up.

An account is the number of an actor (``Cell.account``): of a connection, for its channels and the queues that it has
declared; of a vhost; or of the node. An account outlives its actor, because the queues do.

A queue *follows* (``Cell.follows``), as does every actor that works for the actor that wakes it: its account is the
account of the last long turn, or socket event, that put it into the bulk queue. So the work of a message that moves on
through other queues is charged to the client that sent the message, and so is the work of a queue that nobody has
declared since the node was started.

Turned down: a line for each actor, since a client can make any number of actors; accounts that follow for all actors,
since an actor that all clients use (a supervisor) would wait in the line of the client that woke it; and one turn for
each account, however long the turn: each step of a declare then waited 5 ms for another client's dead letters.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Cell, DeferredJob

Place: TypeAlias = "Cell | DeferredJob"


class _Line:
    """The places of one account, the time that the account has had, and the time of its last turn."""

    __slots__ = ("account", "had_s", "places", "took_s")

    def __init__(self, account: int, had_s: float) -> None:
        self.account = account
        self.had_s = had_s
        self.took_s = 0.0
        self.places: deque[Place] = deque()


class FairQueue:
    """Places by account.

    Attributes:
        count: the number of places that wait.
        account: the account of the place taken last.
    """

    __slots__ = ("_had_s", "_lines", "_order", "_pushed", "_taken", "account", "count")

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        self._order: list[tuple[float, int, _Line]] = []  # a heap: by time, then by arrival
        self._pushed = 0
        self._had_s = 0.0  # the time of the account taken last, before that turn
        self._taken: _Line | None = None  # the line taken last; not in the heap until it is charged
        self.count = self.account = 0

    def put(self, account: int, place: Place) -> None:
        """Put a place at the end of its account's line."""
        self.count += 1
        line = self._lines.get(account)
        if line is None:
            self._lines[account] = line = _Line(account, self._had_s)
            self._push(line)
        line.places.append(place)

    def take(self) -> Place:
        """Take the next place of a queue that is not empty. ``charge`` its turn before the next ``take``."""
        if self._taken is not None:
            self.charge(0.0)
        self.count -= 1
        self._had_s, _, line = heappop(self._order)
        self._taken = line
        self.account = line.account
        return line.places.popleft()

    def charge(self, took_s: float) -> None:
        """Charge the turn of the place taken last to its account."""
        line = self._taken
        if line is None:
            return
        self._taken = None
        line.took_s = took_s
        line.had_s += took_s
        if line.places:
            self._push(line)
        else:
            del self._lines[line.account]

    def next_takes_s(self) -> float:
        """Return the time of the last turn of the account that is next; the queue is not empty."""
        return self._order[0][2].took_s

    def _push(self, line: _Line) -> None:
        self._pushed += 1
        heappush(self._order, (line.had_s, self._pushed, line))
