"""The fair queue: places of long work, by the account that the work is charged to; the accounts share the time.

Each account has a line. ``take`` gives the first place of the line whose account has had the least time, and
``charge`` says how long that took. So an account with a thousand places gets as much time as one with a single place;
and short work, though it goes from actor to actor, waits for one turn of long work, not for one at each of its steps.
Accounts that have had the same time take turns. Within a line the order is that of arrival. This is the scheduling of
Linux' CFS and of start-time fair queueing (Goyal, Vin, Cheng 1996): a line that is new begins with the time of the
one taken last, so that nobody saves up.

An account is a number (``Cell.account``), that of the actor at the root of what it has: a connection with its channels
and the queues that it has declared, a vhost, the node. An account outlives that actor, as its queues do.

An actor that works for whoever wakes it, as a queue does, *follows* (``Cell.follows``): its account is that of the last
long turn, or socket event, that has put it into the bulk queue. So messages that travel along queues on their own are
charged to the client that they come from, and so are queues that nobody has declared since the node was started.

Turned down: a line for each actor, since a client makes as many actors as it likes; that all actors follow, since
one that all use (a supervisor) would wait in the line of the client that woke it; and a turn for each account,
whatever it lasts: then each step of a declare waited for 5 ms of somebody's dead letters.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Cell, DeferredJob

Place: TypeAlias = "Cell | DeferredJob"


class _Line:
    """The places of one account, the time it has had, and what its last turn took."""

    __slots__ = ("account", "had_s", "places", "took_s")

    def __init__(self, account: int, had_s: float) -> None:
        self.account = account
        self.had_s = had_s
        self.took_s = 0.0
        self.places: deque[Place] = deque()


class FairQueue:
    """Places by account.

    Attributes:
        count: the places that wait.
        account: whose place was taken last.
    """

    __slots__ = ("_had_s", "_lines", "_order", "_pushed", "_taken", "account", "count")

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        self._order: list[tuple[float, int, _Line]] = []  # a heap: the time had, then the arrival
        self._pushed = 0
        self._had_s = 0.0  # by the account whose place was taken last, before
        self._taken: _Line | None = None  # it is not in the heap until it is charged
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
        """Take the next place; there is one. Its turn is charged before the next is taken."""
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
        """Return how long the last turn took of the account that is next; there is one."""
        return self._order[0][2].took_s

    def _push(self, line: _Line) -> None:
        self._pushed += 1
        heappush(self._order, (line.had_s, self._pushed, line))
