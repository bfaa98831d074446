"""Calls as mail: requests, replies, and the monitor of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leveret.actors.runtime.signals import CallFailed, MonitorRef

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.runtime.ref import Ref


@dataclass(slots=True, eq=False)
class From:
    """The caller: an actor and its number for the call, or the ``Answer`` of a task."""

    to: Ref | Answer
    tag: int = 0


@dataclass(slots=True, eq=False)
class Answer:
    """Where the reply to a call from outside goes."""

    future: asyncio.Future[Any]

    def give(self, value: object) -> None:
        """Hand the reply over unless the waiting is over."""
        if not self.future.done():
            self.future.set_result(value)


@dataclass(slots=True, eq=False)
class Request:
    """A call, as mail; ``frm`` is for ``reply``."""

    frm: From
    payload: Any

    def __repr__(self) -> str:
        return f"Request({self.payload!r})"


@dataclass(slots=True, eq=False)
class Forward:
    """A call on its way: the actor that gets it hands the request on to ``to``, which answers the caller."""

    to: Ref
    request: Any


@dataclass(slots=True, eq=False)
class Reply:
    """The answer to a call of an actor, as mail."""

    tag: int
    value: Any


class ReplyMonitor(MonitorRef):
    """Monitors the server of a call; its end is the reply."""

    __slots__ = ("_tag",)

    def __init__(self, watcher: Ref, target: Ref, tag: int) -> None:
        self.watcher = watcher
        self.target = target
        self.is_sent = False
        self._tag = tag

    def mail(self, reason: object) -> object:
        return Reply(self._tag, CallFailed(reason))
