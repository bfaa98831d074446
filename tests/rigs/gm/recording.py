"""Histories of members in processes of their own: written as they happen, read and judged when all is over.

Each member has a file, to which it adds a line at each event before it goes on. What a process has written stays when
it is killed, so a killed member's history is whole up to its death: what is missing, nobody has seen the effect of. A
line that was not finished is left out for that reason.

The members' events are put into one order by the clock that all processes of a machine share
(``CLOCK_MONOTONIC``), so all members must be on one machine. A line is a JSON list: nanoseconds, kind, member, and the
parts of ``RingHistory``'s event. Messages of more than 64 bytes stand there as their length and BLAKE2 digest.

Members that are there at the end *rest*: they write what they know when nothing is under way any more. They are the
survivors by whom G2 and G4 are judged, and they must agree: one view, which lists just them, and nothing pending (I7).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from leveret.core.errors import LeveretError
from leveret.gm import Become, Callbacks, Group, GroupEndedError, MemberId, RingNode, Stop
from leveret.gm.requests import MemberStatus
from rigs.gm.history import RingHistory

SUFFIX: Final = ".history"
_TEXT_BYTES_MAX: Final = 64
_DIGEST_BYTES: Final = 16


class HistoryFileError(LeveretError):
    """A file is no history of a member."""


class Recorder:
    """Writes the history of one member to a file.

    Args:
        path: of the file, which must not be there; ``read`` looks for names that end with ``.history``.

    Raises:
        OSError: the file cannot be made, or, in each method, written.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)

    def joined(self, member: MemberId, members: Iterable[MemberId]) -> None:
        self._write("joined", member, _texts(members))

    def members_changed(
        self, member: MemberId, births: Iterable[MemberId], deaths: Iterable[MemberId]
    ) -> None:
        self._write("changed", member, _texts(births), _texts(deaths))

    def published(self, member: MemberId, message: bytes) -> None:
        """Record a broadcast, before it is made."""
        self._write("published", member, text_of(message))

    def delivered(self, member: MemberId, publisher: MemberId, message: bytes) -> None:
        self._write("delivered", member, str(publisher), text_of(message))

    def confirmed(self, member: MemberId, message: bytes, alive: Iterable[str]) -> None:
        """Record that a broadcast was confirmed; ``alive`` are in the publisher's view now."""
        self._write("confirmed", member, text_of(message), list(alive))

    def ended(self, member: MemberId) -> None:
        self._write("ended", member)

    def rested(self, member: MemberId, status: MemberStatus) -> None:
        """Record what a member knows at the end."""
        stamp = [status.epoch, status.version]
        self._write("rested", member, stamp, list(status.members), status.pending)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, kind: str, member: MemberId, *parts: Any) -> None:
        event = [time.monotonic_ns(), kind, str(member), *parts]
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"history of {member}: {written} of {len(line)} bytes were written")


class RecordedGroup(Callbacks):
    """A member of a group whose history is recorded; calls callbacks of the user's, and has the methods of ``Group``.

    Attributes:
        group: the member.
    """

    group: Group

    def __init__(self, recorder: Recorder, callbacks: Callbacks) -> None:
        self._recorder = recorder
        self._callbacks = callbacks
        self._me = MemberId("", 0)
        self._has_ended = False

    @classmethod
    async def join(
        cls,
        name: str,
        callbacks: Callbacks,
        node: RingNode,
        recorder: Recorder,
        timeout_s: float | None = None,
    ) -> Self:
        """Join a group, or begin one, as ``Group.join`` does.

        Raises:
            GroupEndedError: it did not succeed.
        """
        member = cls(recorder, callbacks)
        member.group = await Group.join(name, member, node, timeout_s)
        return member

    @property
    def me(self) -> MemberId:
        """The member's name."""
        return self._me

    async def broadcast(self, message: bytes) -> None:
        self._publish(message)
        await self.group.broadcast(message)

    async def confirmed_broadcast(self, message: bytes, timeout_s: float | None = None) -> None:
        self._publish(message)
        await self.group.confirmed_broadcast(message, timeout_s)
        try:
            alive = (await self.group.status()).members
        except GroupEndedError:  # since: who was in its view is not known any more
            return
        self._recorder.confirmed(self._me, message, alive)

    async def rest(self) -> MemberStatus:
        """Record what the member knows, and return it; to be called when nothing is under way any more."""
        status = await self.group.status()
        self._recorder.rested(self._me, status)
        return status

    def _publish(self, message: bytes) -> None:
        """Record a broadcast, unless it will be refused because the member has ended."""
        if not self._has_ended:
            self._recorder.published(self._me, message)

    # Callbacks.

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> Stop | None:
        self._me = me
        self._recorder.joined(me, members)
        return self._answered(self._callbacks.joined(me, members))

    def members_changed(
        self, births: frozenset[MemberId], deaths: frozenset[MemberId]
    ) -> Stop | None:
        self._recorder.members_changed(self._me, births, deaths)
        return self._answered(self._callbacks.members_changed(births, deaths))

    def handle_msg(self, publisher: MemberId, message: bytes) -> Stop | None:
        self._recorder.delivered(self._me, publisher, message)
        return self._answered(self._callbacks.handle_msg(publisher, message))

    def flow(self, is_blocked: bool) -> None:
        self._callbacks.flow(is_blocked)

    def handle_terminate(self, reason: object) -> None:
        self._has_ended = True
        self._recorder.ended(self._me)
        self._callbacks.handle_terminate(reason)

    def _answered(self, answer: Stop | Become | None) -> Stop | None:
        """Keep recording, whoever is to be called next."""
        if isinstance(answer, Become):
            self._callbacks = answer.callbacks
            return None
        return answer


class Rest(NamedTuple):
    """What a member knew at the end.

    Attributes:
        stamp: epoch and version of its view.
        members: alive in it.
        pending: publications that had not been round, by publisher.
    """

    stamp: tuple[int, int]
    members: frozenset[MemberId]
    pending: dict[str, int]


class Recording:
    """What several files tell together.

    Attributes:
        history: the events of all members, in the order in which they happened.
        rests: of the members that were there at the end.
        messages: all that were published.
        deliveries: of each member, publishers and messages.
    """

    def __init__(self) -> None:
        self.history = RingHistory()
        self.rests: dict[MemberId, Rest] = {}
        self.messages: set[str] = set()
        self.deliveries: defaultdict[MemberId, list[tuple[MemberId, str]]] = defaultdict(list)

    def violations(self) -> list[str]:
        """Return what contradicts G1 to G5 and I7."""
        found = self.history.violations(self.rests)
        survivors = frozenset(self.rests)
        for member, rest in self.rests.items():
            if rest.pending:
                found.append(f"I7: {member} keeps {rest.pending}")
            if rest.members != survivors:
                found.append(
                    f"I7: {member} has {_shown(rest.members)} in its view, at rest are {_shown(survivors)}"
                )
        stamps = {rest.stamp for rest in self.rests.values()}
        if len(stamps) > 1:
            found.append(f"I7: members at rest are in different views: {sorted(stamps)}")
        return found


def read(paths: Iterable[Path]) -> Recording:
    """Read the histories of all members of a group.

    Args:
        paths: files, and folders with files whose names end with ``.history``.

    Raises:
        HistoryFileError: a file is no history.
        OSError: it cannot be read.
    """
    events: list[tuple[int, int, Path, list[Any]]] = []
    for path in paths:
        for file in sorted(path.rglob("*" + SUFFIX)) if path.is_dir() else (path,):
            for number, line in enumerate(file.read_bytes().split(b"\n")[:-1], 1):
                events.append(_parsed(file, number, line))
    events.sort(key=lambda event: event[0])  # stable: each file is in order already
    recording = Recording()
    for _, number, file, event in events:
        try:
            _READERS[event[0]](recording, member_of(event[1]), *event[2:])
        except (KeyError, TypeError, ValueError) as error:
            raise HistoryFileError(
                f"{file}, line {number}: no event of a member: {error!r}"
            ) from error
    return recording


def _parsed(file: Path, number: int, line: bytes) -> tuple[int, int, Path, list[Any]]:
    try:
        time_ns, *event = json.loads(line)
        return int(time_ns), number, file, event
    except (ValueError, TypeError) as error:
        raise HistoryFileError(f"{file}, line {number}: no event of a member: {error}") from error


def member_of(text: str) -> MemberId:
    """Return the member of that name; ValueError: it is none."""
    node, dot, number = text.rpartition(".")
    if not (dot and node):
        raise ValueError(f"{text!r} is no name of a member")
    return MemberId(node, int(number))


def text_of(message: bytes) -> str:
    """Return what stands for a message in a history."""
    if len(message) <= _TEXT_BYTES_MAX:
        return message.decode("latin-1")
    digest = hashlib.blake2b(message, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{len(message)} bytes, {digest}"


def _joined(to: Recording, member: MemberId, members: list[str]) -> None:
    to.history.joined(member, _members(members))


def _changed(to: Recording, member: MemberId, births: list[str], deaths: list[str]) -> None:
    to.history.members_changed(member, _members(births), _members(deaths))


def _published(to: Recording, member: MemberId, message: str) -> None:
    if message in to.messages:
        raise ValueError(f"{message!r} is published twice: messages must differ to be told apart")
    to.messages.add(message)
    to.history.published(member, message.encode("latin-1"))


def _delivered(to: Recording, member: MemberId, publisher: str, message: str) -> None:
    to.deliveries[member].append((member_of(publisher), message))
    to.history.delivered(member, member_of(publisher), message.encode("latin-1"))


def _confirmed(to: Recording, member: MemberId, message: str, alive: list[str]) -> None:
    to.history.confirmed(member, message.encode("latin-1"), _members(alive))


def _ended(to: Recording, member: MemberId) -> None:
    to.history.ended(member)


def _rested(
    to: Recording, member: MemberId, stamp: list[int], alive: list[str], pending: dict[str, int]
) -> None:
    epoch, version = stamp
    to.rests[member] = Rest((epoch, version), frozenset(_members(alive)), dict(pending))


_READERS: Final[dict[str, Callable[..., None]]] = {
    "joined": _joined,
    "changed": _changed,
    "published": _published,
    "delivered": _delivered,
    "confirmed": _confirmed,
    "ended": _ended,
    "rested": _rested,
}


def _texts(members: Iterable[MemberId]) -> list[str]:
    return [str(member) for member in sorted(members)]


def _members(texts: list[str]) -> list[MemberId]:
    return [member_of(text) for text in texts]


def _shown(members: Iterable[MemberId]) -> str:
    return ", ".join(_texts(members)) or "nobody"
