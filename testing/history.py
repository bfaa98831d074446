"""The history of a test: the events that clients saw, checked for violations of the broker's promises.

Clients record their actions and the broker's answers in a ``History``, each from its own thread; ``check`` then looks
for violations:

* **lost**: a message that was confirmed, and that no consumer has acknowledged, is not in its queue;
* **out of order**: a consumer gets messages of one channel for the first time, or a queue holds them, in
  another order than they were published in;
* **back after its ack**: a message comes again, or is in the queue, although its ack was acknowledged;
* **twice**: a message comes again without the redelivered flag, or is in the queue twice; during a disturbance clients
  may note its deliveries in the wrong order, so then only a second delivery without the flag counts;
* **out of nothing**: a consumer gets a message that was never published to that queue.

Terms. A message has a *name* (any hashable value), which its body must contain; each name is
published once. A *channel* is one channel of one connection: after a reconnect it is another. AMQP does
not answer acks, so an ack counts as *acknowledged* only when the client calls ``settled``, after an answer
that the broker gives only once it has taken the ack: the confirm of a persistent message that the same
channel published to the same queue after the ack, for example. A fault of the broker is a ``disturbance``:
an ack of a message delivered before its end, and not settled before its beginning, may have been lost
with the failed actor; such a loss is no violation. A disturbance lasts
until clients have processed the deliveries they had before (libraries buffer deliveries): with a
prefetch of n, until each consumer has taken more than n.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Name: TypeAlias = Hashable
Event: TypeAlias = "tuple[Any, ...]"

_SHOWN: Final = 10  # violations of one kind in an error

_SENT, _CONFIRMED, _DELIVERED, _ACKED, _SETTLED, _BEGIN, _END = range(7)


class HistoryError(AssertionError):
    """A promise was violated; ``violations`` lists the violations."""

    def __init__(self, violations: list[str]) -> None:
        shown = violations[:_SHOWN]
        more = [f"and {len(violations) - _SHOWN} more"] if len(violations) > _SHOWN else []
        super().__init__("\n".join([f"{len(violations)} violations:", *shown, *more]))
        self.violations = violations


class History:
    """The events of all clients. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._events: list[Event] = []  # ``append`` is atomic
        self._confirms: list[Name] = []  # likewise

    @property
    def confirmed_count(self) -> int:
        return len(self._confirms)

    # Recording.

    def sent(self, channel: str, name: Name, *queues: str) -> None:
        """Record a publish, before it is sent, with the queues it is routed to."""
        self._events.append((_SENT, channel, name, queues))

    def confirmed(self, name: Name) -> None:
        """Record a confirm (basic.ack of the broker) of a persistent message for durable queues."""
        self._events.append((_CONFIRMED, name))
        self._confirms.append(name)

    def delivered(self, queue: str, channel: str, name: Name, redelivered: bool) -> None:
        self._events.append((_DELIVERED, queue, channel, name, redelivered))

    def acked(self, queue: str, channel: str, name: Name) -> None:
        """Record an ack, before it is sent."""
        self._events.append((_ACKED, queue, channel, name))

    def settled(self, channel: str) -> None:
        """Record that the broker has received all acks recorded for this channel so far."""
        self._events.append((_SETTLED, channel))

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """Record that the block injects a fault into the broker, which recovers within the block."""
        self._events.append((_BEGIN,))
        try:
            yield
        finally:
            self._events.append((_END,))

    # Checking.

    def violations(self, contents: Mapping[str, Iterable[Name]] | None = None) -> list[str]:
        """Return all violations.

        Args:
            contents: the messages of queues in order, once all clients have stopped; losses are not detected
                in queues that are missing here.
        """
        check = _Check()
        for at, event in enumerate(list(self._events)):
            check.take(at, event)
        for queue, names in (contents or {}).items():
            check.contents(queue, list(names))
        return check.violations

    def check(self, contents: Mapping[str, Iterable[Name]] | None = None) -> None:
        """Raise if there are violations.

        Raises:
            HistoryError: with all violations.
        """
        found = self.violations(contents)
        if found:
            raise HistoryError(found)


class _Check:
    """One pass over the events."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._places: dict[Name, tuple[str, int]] = {}  # channel and number within it
        self._routed: defaultdict[str, set[Name]] = defaultdict(set)
        self._confirmed: set[Name] = set()
        self._next: defaultdict[str, int] = defaultdict(int)
        self._delivered_at: dict[tuple[str, Name], int] = {}
        self._unmarked: set[tuple[str, Name]] = set()  # were delivered without the redelivered flag
        self._acked: defaultdict[str, set[Name]] = defaultdict(set)
        self._open_acks: defaultdict[str, list[tuple[str, Name]]] = defaultdict(list)
        self._gone: set[tuple[str, Name]] = set()  # whose ack was acknowledged
        self._last: dict[tuple[str, str, str], tuple[int, Name]] = {}
        self._disturbed_at = -1  # the end of the last disturbance
        self._disturbances = 0  # under way
        self._takes: Final[dict[int, Callable[..., None]]] = {
            _SENT: self._take_sent,
            _CONFIRMED: self._take_confirmed,
            _DELIVERED: self._take_delivered,
            _ACKED: self._take_acked,
            _SETTLED: self._take_settled,
            _BEGIN: self._take_begin,
            _END: self._take_end,
        }

    def take(self, at: int, event: Event) -> None:
        self._takes[event[0]](at, *event[1:])

    def _say(self, what: str, queue: str, name: Name, more: str = "") -> None:
        sender = self._places.get(name)
        source = f", published by {sender[0]} as its {sender[1]}." if sender else ""
        self.violations.append(f"{what}: {name!r} in {queue!r}{source}{more}")

    def _take_sent(self, _: int, channel: str, name: Name, queues: tuple[str, ...]) -> None:
        assert name not in self._places, f"{name!r} is published twice: the history is of no use"
        self._places[name] = channel, self._next[channel]
        self._next[channel] += 1
        for queue in queues:
            self._routed[queue].add(name)

    def _take_confirmed(self, _: int, name: Name) -> None:
        self._confirmed.add(name)

    def _take_delivered(
        self, at: int, queue: str, channel: str, name: Name, redelivered: bool
    ) -> None:
        key = queue, name
        if name not in self._routed[queue]:
            self._say("out of nothing", queue, name)
            return
        if key in self._gone:
            self._say("back after its ack", queue, name)
        if not redelivered:
            is_late = self._disturbances and key not in self._unmarked
            if key in self._delivered_at and not is_late:
                self._say("twice", queue, name, " and not marked as redelivered")
            self._unmarked.add(key)
            self._in_order(queue, channel, name)
        self._delivered_at[key] = at

    def _in_order(self, queue: str, receiver: str, name: Name) -> None:
        sender, number = self._places[name]
        last = self._last.get((queue, receiver, sender))
        if last is not None and last[0] > number:
            self._say("out of order", queue, name, f" behind {last[1]!r} for {receiver}")
        self._last[queue, receiver, sender] = number, name

    def _take_acked(self, _: int, queue: str, channel: str, name: Name) -> None:
        self._acked[queue].add(name)
        self._open_acks[channel].append((queue, name))

    def _take_settled(self, _: int, channel: str) -> None:
        for key in self._open_acks.pop(channel, ()):
            if not self._disturbances and self._delivered_at.get(key, -1) > self._disturbed_at:
                self._gone.add(key)

    def _take_begin(self, _: int) -> None:
        self._disturbances += 1

    def _take_end(self, at: int) -> None:
        self._disturbances -= 1
        self._disturbed_at = at

    def contents(self, queue: str, names: list[Name]) -> None:
        left: set[Name] = set()
        for name in names:
            if name in left:
                self._say("twice", queue, name, " in the queue")
            elif name not in self._routed[queue]:
                self._say("out of nothing", queue, name)
            else:
                self._in_order(queue, "the final look", name)
            if (queue, name) in self._gone:
                self._say("back after its ack", queue, name)
            left.add(name)
        owed = (self._confirmed & self._routed[queue]) - self._acked[queue] - left
        for name in sorted(owed, key=self._places.__getitem__):
            self._say("lost", queue, name)
