"""The fair queue: long turns of work wait in it by account, and the accounts share the time equally.

Each account has a line of places. A line's *end* is the time that its account has had, and the expected length of its
next turn: that of its last one. ``take`` returns the first place of the line with the least end, and ``charge`` adds
the time of the turn to the account. So an account with a thousand places gets as much time as an account with one, and
short work goes before long work: work that passes from actor to actor in short turns waits for one long turn at each
step, and not for a long turn of each other account. Accounts with the same end take turns. Within a line, places are
taken in the order of their arrival.

This is weighted fair queueing (Demers, Keshav, Shenker 1989). The *virtual time* is what an account has had that always
had places: each turn adds its length, divided by the number of lines. A new line starts at the virtual time, so that an
idle account saves no time up. Of an account without places only the length of its last turn is known, if that was long.

An account is the number of an actor (``Cell.account``): of a connection, for its channels and the queues that it has
declared; of a vhost; or of the node. An account outlives its actor, because the queues do.

A queue *follows* (``Cell.follows``), as does every actor that works for the actor that wakes it: its account is the
account of the last long turn, or socket event, that put it into the bulk queue. So the work of a message that moves on
through other queues is charged to the client that sent the message, and so is the work of a queue that nobody has
declared since the node was started.

Turned down: a line for each actor, since a client can make any number of actors; accounts that follow for all actors,
since an actor that all clients use (a supervisor) would wait in the line of the client that woke it; one turn for each
account, however long the turn: each step of a declare then waited 5 ms for another client's dead letters; to take the
account first that has had the least time (start-time fair queueing): twenty clients whose every message takes 4 ms
began new lines at the same time, and each step of a login waited behind some of them; and lines that remember what
their account has had: a client that declares now and then used more than a twentieth of the time, and waited.
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Cell, DeferredJob

Place: TypeAlias = "Cell | DeferredJob"

KNOWN_TURN_S: Final = 0.0005  # the length of a shorter turn is not remembered
_KNOWN_MAX: Final = 1_024  # accounts


class _LastTurns:
    """The lengths of accounts' last turns, if they were long; a few are forgotten for others that have come since.

    Each account has one place that it may take, at its number modulo the size of the table. The table consists of
    numbers, not of objects: the broker makes accounts all the time (one for each login), and an object that stays keeps
    an arena of 1 MiB which a burst of work has left (``server/cli/spare_memory.py``). A dict of a thousand accounts
    kept eighty arenas.
    """

    __slots__ = ("_accounts", "_took_s")

    def __init__(self) -> None:
        self._accounts = array("q", bytes(8 * _KNOWN_MAX))
        self._took_s = array("d", bytes(8 * _KNOWN_MAX))

    def of(self, account: int) -> float:
        """Return the length of the account's last turn; 0.0: it was short, or is not known."""
        at = account % _KNOWN_MAX
        return self._took_s[at] if self._accounts[at] == account else 0.0

    def note(self, account: int, took_s: float) -> None:
        """Remember the length of a turn."""
        at, is_long = account % _KNOWN_MAX, took_s >= KNOWN_TURN_S
        if is_long or self._accounts[at] == account:
            self._accounts[at] = account
            self._took_s[at] = took_s if is_long else 0.0


class _Line:
    """The places of one account, the time that the account has had, and the time of its last turn."""

    __slots__ = ("account", "had_s", "places", "took_s")

    def __init__(self, account: int, had_s: float, took_s: float) -> None:
        self.account = account
        self.had_s = had_s
        self.took_s = took_s
        self.places: deque[Place] = deque()


class FairQueue:
    """Places by account.

    Attributes:
        count: the number of places that wait.
        account: the account of the place taken last.
    """

    __slots__ = (
        "_last_turns",
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
        self._order: list[tuple[float, int, _Line]] = []  # a heap: by end, then by arrival
        self._pushed = 0
        self._time_s = 0.0  # the virtual time
        self._last_turns = _LastTurns()
        self._taken: _Line | None = None  # the line taken last; not in the heap until it is charged
        self.count = self.account = 0

    def put(self, account: int, place: Place) -> None:
        """Put a place at the end of its account's line."""
        self.count += 1
        line = self._lines.get(account)
        if line is None:
            took_s = self._last_turns.of(account)
            self._lines[account] = line = _Line(account, self._time_s, took_s)
            self._push(line)
        line.places.append(place)

    def take(self) -> Place:
        """Take the next place of a queue that is not empty. ``charge`` its turn before the next ``take``."""
        if self._taken is not None:
            self.charge(0.0)
        self.count -= 1
        end_s, _, line = heappop(self._order)
        # An account that has had more than its share may have gone, so others have had less than this time.
        self._time_s = min(self._time_s, end_s)
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
        self._time_s += took_s / len(self._lines)
        self._last_turns.note(line.account, took_s)
        if line.places:
            self._push(line)
        else:
            del self._lines[line.account]

    def expect(self, account: int, takes_s: float) -> None:
        """Take the next turn of an account without places to be so long, if that is long; else as long as its last."""
        if takes_s >= KNOWN_TURN_S:
            self._last_turns.note(account, takes_s)

    def next_takes_s(self) -> float:
        """Return how long the next turn will take, as far as is known; the queue is not empty."""
        return self._order[0][2].took_s

    def _push(self, line: _Line) -> None:
        self._pushed += 1
        heappush(self._order, (line.had_s + line.took_s, self._pushed, line))
