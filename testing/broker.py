"""A real broker for tests, with a thread and an event loop of its own.

Blocking clients (pika, kombu) work in the test's thread, asynchronous clients (aio-pika) in its event loop::

    with BrokerThread() as broker:
        pika.BlockingConnection(pika.URLParameters(broker.url))

All objects of the broker belong to the broker's thread; ``run`` and ``wait_for`` call into it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from leveret.core.addresses import Address
from leveret.core.errors import LeveretError
from leveret.core.system.files import Files
from leveret.core.system.machine import Machine
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.testing.manual_clock import ManualClock

T = TypeVar("T")

START_S: Final = 30.0  # enough for the recovery of a data directory
STOP_S: Final = 15.0
ANSWER_S: Final = 30.0


class BrokerThreadError(LeveretError):
    """The thread does not run, or did not answer in time."""


def memory_config(**settings: Any) -> Config:
    """Return settings for tests: a free port, everything in memory, no heartbeats."""
    defaults: dict[str, Any] = {
        "listen": (Address("127.0.0.1", 0),),
        "data_dir": None,
        "heartbeat_s": 0,  # else a skipped hour would close the connections
        "memory_total_bytes": Machine().total_bytes(),  # else it is read each second, also of virtual time
    }
    return Config(**(defaults | settings))


class BrokerThread:
    """One broker; it can be started again once it has stopped.

    Args:
        config: ``memory_config()`` by default.
        files: file access for the message store; the machine's by default.
    """

    broker: Broker  # it belongs to the broker's thread, and so does its clock
    clock: ManualClock

    def __init__(self, config: Config | None = None, files: Files | None = None) -> None:
        self.config = config or memory_config()
        self._files = files
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stops: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """An AMQP URL of the first listener, with the default user."""
        return self.broker.url

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.broker.addresses[0]
        return host, port

    def __repr__(self) -> str:
        return (
            "<broker, stopped>" if self._loop is None else f"<broker at {self.broker.addresses[0]}>"
        )

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self.run(lambda: self.broker.root is not None)

    def start(self) -> None:
        """Start the broker; clients can connect when this returns.

        Raises:
            Exception: as ``Broker.start``.
        """
        assert self._thread is None, "it runs"
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(ready)), name="leveret broker", daemon=True
        )
        self._thread.start()
        try:
            ready.result(START_S)
        except BaseException:
            self._end()
            raise

    async def _main(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stops = asyncio.Event()
        self.clock = ManualClock(self._loop)
        self.broker = Broker(self.config, self.clock, self._files)
        try:
            await self.broker.start()
        except BaseException as error:  # noqa: BLE001  # it is raised in ``start``
            ready.set_exception(error)
            return
        ready.set_result(None)
        await self._end_of_broker(asyncio.create_task(self._stops.wait()))
        self.clock.release()  # else time-outs while stopping would never come
        await self.broker.stop()  # a broker that has ended by itself still has open sockets
        await self._stops.wait()

    async def _end_of_broker(self, stops: asyncio.Task[Any]) -> None:
        ends = asyncio.create_task(self.broker.wait_ended())
        await asyncio.wait([ends, stops], return_when=asyncio.FIRST_COMPLETED)
        for task in (ends, stops):
            task.cancel()
        await asyncio.gather(ends, stops, return_exceptions=True)

    def stop(self) -> None:
        """Stop the broker; a second call does nothing."""
        if self._thread is not None:
            assert self._loop is not None
            assert self._stops is not None
            self._loop.call_soon_threadsafe(self._stops.set)
            self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_S)
            if thread.is_alive():
                raise BrokerThreadError(f"the broker did not stop within {STOP_S} s")
        self._loop = None

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the broker's thread and return its result."""

        async def called() -> T:
            return function(*args)

        return self.wait_for(called())

    def wait_for(self, coroutine: Coroutine[Any, Any, T], within_s: float = ANSWER_S) -> T:
        """Run a coroutine in the broker's loop and return its result.

        Raises:
            BrokerThreadError: the coroutine did not end in time, or the broker is stopped.
        """
        if self._loop is None or threading.current_thread() is self._thread:
            coroutine.close()
            state = "stopped" if self._loop is None else "asked in its own thread, which would wait"
            raise BrokerThreadError(f"the broker is {state}")
        asked = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return asked.result(within_s)
        except TimeoutError:
            if asked.done():
                raise  # its own
            asked.cancel()
            raise BrokerThreadError(f"no answer from the broker within {within_s} s") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
