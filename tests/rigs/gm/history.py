"""Histories of a ring: what members said and heard, and whether the guarantees hold in it.

==  =============================================================================================
G1  A member gets a publisher's messages in their order, each once, none missing between two; it
    gets none from before the first message that was published after it had joined and none after is missing.
G2  A message that one surviving member had reaches all survivors that had joined before it was published.
G3  A confirmed message had been delivered by every member alive in the publisher's view that had joined before.
G4  Once a death is reported, no message of the dead comes; the member has had each that a survivor had.
G5  No message, and no death, of a member whose birth was not reported.
==  =============================================================================================

Messages must be different from each other. ``survivors`` are the members of the final ring; the history must end when
nothing is under way any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from leveret.gm.records.group import MemberId

_NAMES: Final = ("joined", "changed", "published", "delivered", "confirmed", "ended")
_JOINED, _CHANGED, _PUBLISHED, _DELIVERED, _CONFIRMED, _ENDED = range(len(_NAMES))


class RingHistory:
    """Events of all members, in the order in which they happened."""

    def __init__(self) -> None:
        self._events: list[tuple[Any, ...]] = []

    def joined(self, member: MemberId, members: Iterable[MemberId]) -> None:
        self._events.append((_JOINED, member, frozenset(members)))

    def members_changed(
        self, member: MemberId, births: Iterable[MemberId], deaths: Iterable[MemberId]
    ) -> None:
        self._events.append((_CHANGED, member, frozenset(births), frozenset(deaths)))

    def published(self, member: MemberId, message: bytes) -> None:
        """Record a broadcast, before it is made."""
        self._events.append((_PUBLISHED, member, message))

    def delivered(self, member: MemberId, publisher: MemberId, message: bytes) -> None:
        self._events.append((_DELIVERED, member, publisher, message))

    def confirmed(self, member: MemberId, message: bytes, alive: Iterable[MemberId]) -> None:
        """Record that a broadcast was confirmed; ``alive`` are in the publisher's view now."""
        self._events.append((_CONFIRMED, member, message, tuple(alive)))

    def ended(self, member: MemberId) -> None:
        self._events.append((_ENDED, member))

    def __len__(self) -> int:
        return len(self._events)

    def events(self) -> list[tuple[Any, ...]]:
        """Return all events; the first item of each is a number for its kind."""
        return list(self._events)

    def counts(self) -> dict[str, int]:
        """Return how many events of each kind there are."""
        kinds = Counter(event[0] for event in self._events)
        return {name: kinds[number] for number, name in enumerate(_NAMES)}

    def confirms(self) -> set[bytes]:
        """Return the messages whose broadcast was confirmed."""
        return {event[2] for event in self._events if event[0] == _CONFIRMED}

    def violations(self, survivors: Iterable[MemberId]) -> list[str]:
        """Return all violations."""
        check = _Check(frozenset(survivors))
        for at, event in enumerate(self._events):
            check.take(at, event)
        check.finish()
        return check.violations


class _Check:
    """One pass over the events, and a look at the end."""

    def __init__(self, survivors: frozenset[MemberId]) -> None:
        self.violations: list[str] = []
        self._survivors = survivors
        self._joined_at: dict[MemberId, int] = {}
        self._known: dict[MemberId, set[MemberId]] = {}
        self._ended: set[MemberId] = set()
        self._published: defaultdict[MemberId, list[int]] = defaultdict(list)  # when
        self._numbers: dict[bytes, tuple[MemberId, int]] = {}
        self._last: dict[tuple[MemberId, MemberId], int] = {}  # member, publisher: last number
        self._reports: list[tuple[MemberId, MemberId, int]] = []  # member, dead, last number had
        self._takes: Final[dict[int, Callable[..., None]]] = {
            _JOINED: self._take_joined,
            _CHANGED: self._take_changed,
            _PUBLISHED: self._take_published,
            _DELIVERED: self._take_delivered,
            _CONFIRMED: self._take_confirmed,
            _ENDED: self._take_ended,
        }

    def take(self, at: int, event: tuple[Any, ...]) -> None:
        kind, member = event[:2]
        if member in self._ended:
            self._say("G5", f"{member} went on after its end: {event}")
        elif kind not in (_JOINED, _ENDED) and member not in self._known:
            self._say("G5", f"{member} had not joined: {event}")
        else:
            self._takes[kind](at, *event[1:])

    def _say(self, rule: str, what: str) -> None:
        self.violations.append(f"{rule}: {what}")

    def _take_joined(self, at: int, member: MemberId, members: frozenset[MemberId]) -> None:
        if member in self._known:
            self._say("G5", f"{member} joined twice")
        if member not in members:
            self._say("G5", f"{member} joined a group without itself")
        self._joined_at[member] = at
        self._known[member] = set(members)

    def _take_changed(
        self, _: int, member: MemberId, births: frozenset[MemberId], deaths: frozenset[MemberId]
    ) -> None:
        known = self._known[member]
        if births & known:
            self._say("G5", f"{member} heard again of the births of {births & known}")
        if deaths - known:
            self._say("G5", f"{member} heard of deaths without births: {deaths - known}")
        known |= births
        known -= deaths
        for dead in deaths:
            self._reports.append((member, dead, self._last.get((member, dead), -1)))

    def _take_published(self, at: int, member: MemberId, message: bytes) -> None:
        assert message not in self._numbers, f"{message!r} is published twice: of no use"
        self._numbers[message] = member, len(self._published[member])
        self._published[member].append(at)

    def _take_delivered(
        self, _: int, member: MemberId, publisher: MemberId, message: bytes
    ) -> None:
        sender, number = self._numbers.get(message, (None, -1))
        if sender != publisher:
            self._say("G1", f"{member} got {message!r} of {publisher}, which never published it")
            return
        if publisher not in self._known[member]:
            rule = (
                "G4" if any(m == member and d == publisher for m, d, _ in self._reports) else "G5"
            )
            self._say(rule, f"{member} got {message!r} of {publisher}, which it does not know")
        last = self._last.get((member, publisher))
        if last is None:
            self._begin(member, publisher, number)
        elif number != last + 1:
            self._say("G1", f"{member} got number {number} of {publisher} after {last}")
        self._last[member, publisher] = number

    def _begin(self, member: MemberId, publisher: MemberId, number: int) -> None:
        """Take the first message of a publisher: none may be missing since the member joined."""
        if number and self._published[publisher][number - 1] > self._joined_at[member]:
            self._say("G1", f"{member} began with number {number} of {publisher}, too late")

    def _take_confirmed(
        self, _: int, member: MemberId, message: bytes, alive: tuple[MemberId, ...]
    ) -> None:
        publisher, number = self._numbers[message]
        if publisher != member:
            self._say("G3", f"{member} had {message!r} of {publisher} confirmed")
        published_at = self._published[publisher][number]
        for other in alive:
            if other in self._ended or self._joined_at.get(other, published_at) >= published_at:
                continue
            if self._last.get((other, publisher), -1) < number:
                self._say(
                    "G3", f"number {number} of {publisher} was confirmed, {other} has not had it"
                )

    def _take_ended(self, _: int, member: MemberId) -> None:
        self._ended.add(member)

    def finish(self) -> None:
        for publisher, published in self._published.items():
            had = [self._last.get((each, publisher), -1) for each in self._survivors]
            most = max(had, default=-1)
            for member in self._survivors:
                self._look_for_loss(member, publisher, most, published)
            for member, dead, last in self._reports:
                if (
                    dead == publisher
                    and last < most
                    and (last >= 0 or published[most] > self._joined_at[member])
                ):
                    self._say(
                        "G4",
                        f"{member} heard of the death of {dead} after {last}, another had {most}",
                    )

    def _look_for_loss(
        self, member: MemberId, publisher: MemberId, most: int, published: list[int]
    ) -> None:
        last = self._last.get((member, publisher))
        if most < 0 or last == most:
            return
        if last is not None or published[most] > self._joined_at.get(member, published[most]):
            self._say(
                "G2", f"{member} has numbers up to {last} of {publisher}, another survivor {most}"
            )
