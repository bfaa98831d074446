"""A TCP proxy that loses requests, answers and connections on demand."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from random import Random
from types import TracebackType
from typing import Self


class Fault(Enum):
    """What happens to the next requests."""

    NONE = auto()
    LOSE_REQUEST = auto()  # the connection is cut, and the server has seen nothing
    LOSE_ANSWER = auto()  # the connection is cut when the server has answered
    SILENCE = auto()  # the server has it, and its answer is kept back
    LATE = (
        auto()
    )  # the client is cut off, and the server gets the request when ``release`` is called


class FaultyProxy:
    """Listens on a free port and passes on to another.

    Attributes:
        faults: how many requests have met one.
        paths: of all requests.
        delivered: set when a late request has been answered by the server.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._late = asyncio.Event()
        self._fault = Fault.NONE
        self._count = 0
        self._after = 0
        self._random, self._share = Random(), 0.0
        self.faults = 0
        self.paths: list[str] = []
        self.delivered = asyncio.Event()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def fail(self, fault: Fault, count: int = 1, after: int = 0) -> None:
        """Let ``count`` requests meet a fault, when ``after`` others have gone through."""
        self._fault, self._count, self._after = fault, count, after
        self._late.clear()
        self.delivered.clear()

    def fail_often(self, fault: Fault, random: Random, share: float) -> None:
        """Let a share of all requests meet a fault."""
        self._fault, self._random, self._share = fault, random, share

    def release(self) -> None:
        """Let late requests reach the server."""
        self._late.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await self._pass_on(reader, writer, there_reader, there)
        except (OSError, asyncio.IncompleteReadError):
            return  # one of the two has gone
        finally:
            writer.close()
            there.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there_reader: asyncio.StreamReader,
        there: asyncio.StreamWriter,
    ) -> None:
        while request := await _message(reader):
            self.paths.append(request.split(b" ", 2)[1].decode())
            fault = self._next_fault()
            if fault is Fault.LOSE_REQUEST:
                return
            if fault is Fault.LATE:
                writer.close()
                await self._late.wait()
            there.write(request)
            answer = await _message(there_reader)
            if fault is Fault.LATE:
                self.delivered.set()
                return
            if fault is Fault.SILENCE:
                await self._late.wait()
            if fault is Fault.LOSE_ANSWER:
                return
            writer.write(answer)
            await writer.drain()

    def _next_fault(self) -> Fault:
        if self._after:
            self._after -= 1
            return Fault.NONE
        if self._count:
            self._count -= 1
        elif self._random.random() >= self._share:
            return Fault.NONE
        self.faults += 1
        return self._fault


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Return one request or answer of HTTP/1.1 as bytes; empty at the end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
    if fields.get(b"transfer-encoding") != b"chunked":
        return head + await reader.readexactly(int(fields.get(b"content-length", 0)))
    message, line = head, b""
    while line != b"0\r\n":
        line = await reader.readuntil(b"\r\n")
        message += line + await reader.readexactly(int(line, 16) and int(line, 16) + 2)
    while line != b"\r\n":  # trailers
        line = await reader.readuntil(b"\r\n")
        message += line
    return message
