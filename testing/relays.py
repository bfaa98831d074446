"""Relays: TCP connections between processes that a test cuts, delays, breaks and heals.

Each process has a name. A process that dials another is given the address of a relay, which passes everything on to
where the other listens, so the processes need no hook, and may be of any program: nodes, brokers, etcd. ::

    with Relays() as relays:
        relays.place("etcd", "127.0.0.1:2379")
        address = relays.address("ann", "etcd")  # for ann to dial
        relays.cut("ann", "etcd")
        relays.heal()

What a way does holds for both sides of it alike: *ann to etcd* are the bytes that ann sends, over connections that
either of the two has made.

* A way that is *cut* is silent, as a network that loses packets: nothing arrives, the end of a connection included,
  and nobody is told. When it is healed, everything arrives that was sent meanwhile, as TCP sends it again. A
  connection that is made meanwhile seems to be there, and is made when it is healed.
* A way that is *delayed* keeps its order. With jitter each piece of a stream is late by another time.
* A connection that is *reset* is lost for both sides at once, with what is under way.

The relays run on a thread of their own, so a test may wait in any way. Turned down: hooks in the node, which other
programs have not, and whose faults end with the process they are in; rules of the kernel's firewall, which need root.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Self, TypeAlias

from leveret.core.errors import LeveretError

Names: TypeAlias = str | Iterable[str]

_PIECE_BYTES: Final = 64 * 1024
_PIECES_MAX: Final = 64  # under way in a direction of a connection; then its sender has to wait
_CALL_S: Final = 30.0
_HOST: Final = "127.0.0.1"


class RelayError(LeveretError):
    """The relays cannot do what was asked."""


class _Way:
    """From one process to another."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = self.jitter_s = 0.0


class _Connection:
    """A connection from a process to another, over a relay: two sockets."""

    def __init__(self, random: Random, forth: _Way, back: _Way) -> None:
        self._random = random
        self._forth = forth
        self._back = back
        self._writers: list[asyncio.StreamWriter] = []

    async def run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]
    ) -> None:
        """Connect to the target and carry everything, until both directions have ended."""
        self._writers.append(writer)
        try:
            await self._forth.open.wait()
            await self._back.open.wait()
            far_reader, far_writer = await asyncio.open_connection(*target)
            self._writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer, self._forth))
                group.create_task(self._carry(far_reader, writer, self._back))
        except OSError:
            pass  # nobody listens there: the dialler's connection ends, as it would without a relay
        finally:
            self.abort()

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way
    ) -> None:
        """Carry one direction to its end, which arrives as everything else does."""
        pieces: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_PIECES_MAX)
        taking = asyncio.create_task(self._take(reader, pieces, way))
        try:
            while await self._give(pieces, writer, way):
                pass
        finally:
            taking.cancel()

    async def _take(
        self,
        reader: asyncio.StreamReader,
        pieces: asyncio.Queue[tuple[float, bytes | None]],
        way: _Way,
    ) -> None:
        """Read pieces, each with the time at which it is to arrive; b"": the end, None: the connection is lost."""
        time = asyncio.get_running_loop().time
        due_s = 0.0
        piece: bytes | None = b"."
        while piece:
            try:
                piece = await reader.read(_PIECE_BYTES)
            except OSError:
                piece = None
            late_s = way.delay_s + self._random.random() * way.jitter_s
            due_s = max(due_s, time() + late_s)
            await pieces.put((due_s, piece))

    async def _give(
        self,
        pieces: asyncio.Queue[tuple[float, bytes | None]],
        writer: asyncio.StreamWriter,
        way: _Way,
    ) -> bool:
        """Write the next piece when it is due and the way is open; return whether there may be more."""
        due_s, piece = await pieces.get()
        left_s = due_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)
        await way.open.wait()
        try:
            if piece:
                writer.write(piece)
                await writer.drain()
                return True
            if piece is None:
                writer.transport.abort()
            elif not writer.transport.is_closing():
                writer.write_eof()
        except OSError:
            pass  # the receiver has gone; the other direction carries that to the sender
        return False


class Relays:
    """The connections between some processes; a context, on leaving which all of them are lost.

    Args:
        random: for jitter.
    """

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or Random()  # no secret
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._places: dict[str, tuple[str, int]] = {}
        self._servers: dict[tuple[str, str], asyncio.Server] = {}
        self._ways: dict[tuple[str, str], _Way] = {}
        self._connections: dict[asyncio.Task[None], tuple[str, str, _Connection]] = {}

    def place(self, name: str, address: str) -> None:
        """Say where a process listens, now or after it was started again.

        Args:
            name: of the process.
            address: ``HOST:PORT``.

        Raises:
            RelayError: it is no address.
        """
        host, colon, port = address.rpartition(":")
        if not (colon and host and port.isdigit()):
            raise RelayError(f"{address!r} is no address of {name}: it must be HOST:PORT")
        self._places[name] = host.removeprefix("[").removesuffix("]"), int(port)

    def address(self, source: str, target: str) -> str:
        """Return what ``source`` has to dial to reach ``target``: always the same ``HOST:PORT``."""

        async def listen() -> int:
            server = self._servers.get((source, target))
            if server is None:
                server = await asyncio.start_server(
                    lambda reader, writer: self._accept(source, target, reader, writer), _HOST, 0
                )
                self._servers[source, target] = server
            port: int = server.sockets[0].getsockname()[1]
            return port

        return f"{_HOST}:{asyncio.run_coroutine_threadsafe(listen(), self._loop).result(_CALL_S)}"

    # Faults.

    def cut(self, these: Names, those: Names, *, is_one_way: bool = False) -> None:
        """Let nothing arrive, from these processes at those and, unless ``is_one_way``, back."""
        self._change(these, those, is_one_way, lambda way: way.open.clear())

    def delay(
        self,
        these: Names,
        those: Names,
        delay_s: float,
        jitter_s: float = 0.0,
        *,
        is_one_way: bool = False,
    ) -> None:
        """Let what is sent from now on arrive ``delay_s`` later, and by up to ``jitter_s`` more; 0: at once.

        Raises:
            RelayError: one of the times is negative.
        """
        if delay_s < 0 or jitter_s < 0:
            raise RelayError(f"delay {delay_s} and jitter {jitter_s} must not be negative")

        def change(way: _Way) -> None:
            way.delay_s, way.jitter_s = delay_s, jitter_s

        self._change(these, those, is_one_way, change)

    def reset(self, these: Names, those: Names) -> None:
        """Break the connections between these processes and those."""
        ways = {*_ways(these, those), *_ways(those, these)}

        def reset() -> None:
            for source, target, connection in self._connections.values():
                if (source, target) in ways:
                    connection.abort()

        self._run(reset)

    def heal(self) -> None:
        """End all cuts and delays; what is on its way arrives when it is due."""

        def heal() -> None:
            for way in self._ways.values():
                way.open.set()
                way.delay_s = way.jitter_s = 0.0

        self._run(heal)

    def count(self, source: str, target: str) -> int:
        """Return how many connections there are that ``source`` has made to ``target``."""
        ends = [(each[0], each[1]) for each in list(self._connections.values())]
        return ends.count((source, target))

    # The thread.

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_CALL_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes sockets that were aborted in its next round

    def _accept(
        self,
        source: str,
        target: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        place = self._places.get(target)
        if place is None:
            writer.transport.abort()
            return
        connection = _Connection(self._random, self._way(source, target), self._way(target, source))
        task = self._loop.create_task(connection.run(reader, writer, place))
        self._connections[task] = source, target, connection
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        if not task.cancelled():
            task.result()  # a fault of the relay's own is raised here, and the loop logs it

    def _way(self, source: str, target: str) -> _Way:
        return self._ways.setdefault((source, target), _Way())

    def _change(
        self, these: Names, those: Names, is_one_way: bool, change: Callable[[_Way], None]
    ) -> None:
        ways = _ways(these, those)
        if not is_one_way:
            ways += _ways(those, these)

        def run() -> None:
            for source, target in ways:
                change(self._way(source, target))

        self._run(run)

    def _run(self, call: Callable[[], None]) -> None:
        """Run a function on the relays' thread, and wait for it."""

        async def run() -> None:
            call()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_S)


def _ways(these: Names, those: Names) -> list[tuple[str, str]]:
    """Return all pairs of one of these and one of those that are not the same."""
    sources, targets = ([each] if isinstance(each, str) else list(each) for each in (these, those))
    return [(source, target) for source in sources for target in targets if source != target]
