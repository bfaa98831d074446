"""Calls from other threads onto an event loop.

Calls are made in the order in which they came. ``call_soon_threadsafe`` writes to a socket, so calls
that come before the loop has run share one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable


class LoopBridge:
    """Calls functions on the thread of a loop; from there, at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._is_called = False
        self._waiting: set[Future[Any]] = set()

    def is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call, wait, return the result or raise the exception; ActorError: the loop ended."""
        if self.is_on_loop():
            return function(*args)
        future: Future[Any] = Future()
        self._waiting.add(future)
        try:
            if not self._add(_settle, (future, function, args)):
                raise ActorError("the system is shut down: its event loop has ended")
            return future.result()
        finally:
            self._waiting.discard(future)

    def enter(self, function: Callable[..., Any], *args: Any) -> None:
        """Call now or soon; not at all once the loop has ended."""
        if self.is_on_loop():
            function(*args)
        else:
            self._add(function, args)

    def close(self) -> None:
        """Release waiting callers; for when the loop has ended."""
        self._calls.clear()
        for future in [future for future in list(self._waiting) if not future.done()]:
            future.set_exception(ActorError("the system is shut down: its event loop has ended"))

    def _add(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Return whether there is a loop to call it."""
        self._calls.append((function, args))
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(self._make_calls)
        return not self._loop.is_closed()

    def _make_calls(self) -> None:
        self._is_called = (
            False  # before the calls: a call added from here on asks for another round
        )
        calls = self._calls
        try:
            for _ in range(len(calls)):
                function, args = calls.popleft()
                function(*args)
        finally:
            if calls:
                self._loop.call_soon(self._make_calls)


def _settle(future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        result = function(*args)
    except Exception as error:  # noqa: BLE001  # the caller gets it
        future.set_exception(error)
    else:
        future.set_result(result)
