"""``expect_published``: a block of a test that must publish certain messages.

::

    with expect_published(exchange="orders", routing_key="created") as found:
        service.place_order(7)
    assert found[0].json() == {"order": 7}

In a coroutine it is ``async with``, so that its loop can send meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from leveret.testing.publish_hook import PublishHook
from leveret.testing.seen_messages import SeenMessage, seen

if TYPE_CHECKING:
    from leveret.core.message import Message

WITHIN_S: Final = 1.0
_SHOWN: Final = 20  # messages in a failure


class Expectation:
    """One block; see ``leveret.testing.vhost.FreshVhost.expect_published`` for the arguments."""

    def __init__(
        self,
        is_meant: Callable[[Any], bool],
        exchange: str | None,
        routing_key: str | None,
        where: Callable[[SeenMessage], object] | None,
        count: int | None,
        within_s: float,
    ) -> None:
        self._exchange = exchange
        self._routing_key = routing_key
        self._where = where
        self._count = count
        self._within_s = within_s
        self._changed = threading.Condition()
        self._new: list[Message] = []  # not examined yet
        self._seen: list[SeenMessage] = []
        self._found: list[SeenMessage] = []
        # The reason why a message does not match, by its position in the seen messages.
        self._failures: dict[int, str] = {}
        self._hook = PublishHook(is_meant, self._sees)

    def _sees(self, messages: list[Message]) -> None:
        """Collect published messages; in the broker's thread, which is not blocked."""
        with self._changed:
            self._new += messages
            self._changed.notify_all()

    # In the test's thread, so that a predicate may block.

    def _wait(self) -> None:
        """Examine published messages until enough match, or the time is over."""
        until_s = time.monotonic() + self._within_s
        while True:
            with self._changed:
                left_s = until_s - time.monotonic()
                self._changed.wait_for(lambda: self._new, max(0.0, left_s))
                new, self._new = self._new, []
            self._judge(new)
            if len(self._found) >= (self._count or 1) or left_s <= 0:
                return

    def _judge(self, messages: list[Message]) -> None:
        for message in map(seen, messages):
            self._seen.append(message)
            reason = self._why_not(message)
            if reason is None:
                self._found.append(message)
            else:
                self._failures[len(self._seen)] = reason

    def _why_not(self, message: SeenMessage) -> str | None:
        if self._exchange not in {None, message.exchange}:
            return "another exchange"
        if self._routing_key not in {None, message.routing_key}:
            return "another routing key"
        try:
            holds = self._where is None or self._where(message)
        except Exception as error:  # noqa: BLE001  # it is told with the failure
            return f"the predicate raised {error!r}"
        return None if holds else "the predicate says no"

    def _check(self) -> None:
        __tracebackhide__ = True
        count = len(self._found)
        if count != self._count if self._count is not None else count == 0:
            raise AssertionError(self._failure())

    def _failure(self) -> str:
        wanted = "a message" if self._count is None else f"{self._count} messages"
        place = f"exchange {self._exchange!r}" if self._exchange is not None else "any exchange"
        if self._routing_key is not None:
            place += f" with routing key {self._routing_key!r}"
        if self._where is not None:
            place += f" where {getattr(self._where, '__name__', self._where)}"
        lines = [
            f"expected {wanted} to {place} within {self._within_s} s, found {len(self._found)}"
        ]
        if not self._seen:
            return f"{lines[0]}; nothing at all was published"
        lines.append("published meanwhile:")
        for number, message in enumerate(self._seen[:_SHOWN], 1):
            lines.append(f"  {number}. {message}: {self._failures.get(number, 'counts')}")
        if len(self._seen) > _SHOWN:
            lines.append(f"  and {len(self._seen) - _SHOWN} more")
        return "\n".join(lines)

    def __enter__(self) -> list[SeenMessage]:
        self._hook.__enter__()
        return self._found

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        try:
            if kind is None:
                self._wait()
        finally:
            self._hook.__exit__()
        if kind is None:
            self._check()

    async def __aenter__(self) -> list[SeenMessage]:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        try:
            if kind is None:
                await asyncio.to_thread(self._wait)
        finally:
            self._hook.__exit__()
        if kind is None:
            self._check()
