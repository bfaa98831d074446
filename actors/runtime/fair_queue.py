"""The fair queue: long turns of work wait in it by account, and the accounts share the time equally.

Each account has a line of places. ``take`` returns the first place of the line whose account has had the least time,
and ``charge`` adds the time of that turn to the account. So an account with a thousand places gets as much time as an
account with one. Accounts that have had the same time take turns. Within a line, places are taken in the order of their
arrival. Linux' CFS and start-time fair queueing (Goyal, Vin, Cheng 1996) schedule like this.

The *virtual time* is the mean of what the accounts have had: each turn adds its length, divided by the number of lines.
A new line starts at the virtual time, or with what its account has had, if that is more: an idle account saves no time
up. Until a line has had ``CREDIT_S`` it is taken as if it had had so much less. So short work that comes now and then
goes before the long work of others, and does not wait for a turn of each of them.

An account is the number of an actor (``Cell.account``): of a connection, for its channels and the queues that it has
declared; of a vhost; or of the node. An account outlives its actor, because the queues do.

A queue *follows* (``Cell.follows``), as does every actor that works for the actor that wakes it: its account is the
account of the last long turn, or socket event, that put it into the bulk queue. So the work of a message that moves on
through other queues is charged to the client that sent the message, and so is the work of a queue that nobody has
declared since the node was started.

Turned down: a line for each actor, since a client can make any number of actors; accounts that follow for all actors,
since an actor that all clients use (a supervisor) would wait in the line of the client that woke it; one turn for
each account, however long the turn: each step of a declare then waited 5 ms for another client's dead letters; and new
lines without credit: each step of a login then waited for a long turn of each of twenty clients. An account for
the handshakes of each host: all clients behind a load balancer have its address.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Cell, DeferredJob

Place: TypeAlias = "Cell | DeferredJob"

CREDIT_S: Final = 0.005  # two long turns
_FORGET_AT: Final = 256  # accounts without places


class _Line:
    """The places of one account, the time that the account has had, that of this line, and that of its last turn."""

    __slots__ = ("account", "had_s", "places", "took_s", "used_s")

    def __init__(self, account: int, had_s: float) -> None:
        self.account = account
        self.had_s = had_s
        self.took_s = self.used_s = 0.0
        self.places: deque[Place] = deque()


class FairQueue:
    """Places by account.

    Attributes:
        count: the number of places that wait.
        account: the account of the place taken last.
    """

    __slots__ = (
        "_check_at",
        "_forget_at",
        "_idle_s",
        "_lines",
        "_order",
        "_pushed",
        "_taken",
        "_time_s",
        "account",
        "count",
    )

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}
        self._order: list[tuple[float, int, _Line]] = []  # a heap: by time, then by arrival
        self._pushed = 0
        self._time_s = 0.0  # the virtual time
        self._idle_s: dict[int, float] = {}  # what accounts without places have had, if it is more
        self._forget_at = _FORGET_AT
        self._check_at = 0  # in so many turns
        self._taken: _Line | None = None  # the line taken last; not in the heap until it is charged
        self.count = self.account = 0

    def put(self, account: int, place: Place) -> None:
        """Put a place at the end of its account's line."""
        self.count += 1
        line = self._lines.get(account)
        if line is None:
            line = _Line(account, max(self._idle_s.pop(account, self._time_s), self._time_s))
            self._lines[account] = line
            self._push(line)
        line.places.append(place)

    def take(self) -> Place:
        """Take the next place of a queue that is not empty. ``charge`` its turn before the next ``take``."""
        if self._taken is not None:
            self.charge(0.0)
        self.count -= 1
        _, _, line = heappop(self._order)
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
        line.used_s += took_s
        lines = self._lines
        self._time_s += took_s / len(lines)
        self._check_at -= 1
        if self._check_at <= 0:  # lines that have gone may have left it ahead of all others
            self._time_s = min(self._time_s, max(each.had_s for each in lines.values()))
            self._check_at = len(lines)
        if line.places:
            self._push(line)
            return
        del lines[line.account]
        self._idle_s[line.account] = line.had_s
        if len(self._idle_s) >= self._forget_at:
            self._forget()

    def _forget(self) -> None:
        """Forget accounts that have had no more than a new one."""
        time_s = self._time_s
        self._idle_s = {account: had_s for account, had_s in self._idle_s.items() if had_s > time_s}
        self._forget_at = _FORGET_AT + 2 * len(self._idle_s)

    def next_takes_s(self) -> float:
        """Return the time of the last turn of the account that is next; the queue is not empty."""
        return self._order[0][2].took_s

    def _push(self, line: _Line) -> None:
        self._pushed += 1
        credit_s = CREDIT_S if line.used_s < CREDIT_S else 0.0
        heappush(self._order, (line.had_s - credit_s, self._pushed, line))
