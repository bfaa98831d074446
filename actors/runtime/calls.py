"""Calls as mail: requests, replies, and the monitor of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.actors.runtime.links import MonitorRef
from leveret.actors.runtime.signals import CallFailed

if TYPE_CHECKING:
    import asyncio

    from leveret.actors.runtime.ref import Ref


class From:
    """The caller: an actor and its number for the call, or the ``Answer`` of a task."""

    __slots__ = ("tag", "to")

    def __init__(self, to: Ref | Answer, tag: int = 0) -> None:
        self.to = to
        self.tag = tag


class Answer:
    """Where the reply to a call from outside goes."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def give(self, value: object) -> None:
        """Hand the reply over unless the waiting is over."""
        if not self.future.done():
            self.future.set_result(value)


class Request:
    """A call, as mail; ``frm`` is for ``reply``."""

    __slots__ = ("frm", "payload")

    def __init__(self, frm: From, payload: Any) -> None:
        self.frm = frm
        self.payload = payload

    def __repr__(self) -> str:
        return f"Request({self.payload!r})"


class Reply:
    """The answer to a call of an actor, as mail."""

    __slots__ = ("tag", "value")

    def __init__(self, tag: int, value: Any) -> None:
        self.tag = tag
        self.value = value


class ReplyMonitor(MonitorRef):
    """Monitors the server of a call; its end is the reply."""

    __slots__ = ("_tag",)

    def __init__(self, watcher: Ref, target: Ref, tag: int) -> None:
        self.watcher = watcher
        self.target = target
        self.is_told = False
        self._tag = tag

    def mail(self, reason: object) -> object:
        return Reply(self._tag, CallFailed(reason))
