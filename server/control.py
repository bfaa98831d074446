r"""The control socket of a running broker: a unix socket in the data directory.

One JSON document per line each way::

    {"verb": "add_user", "arguments": {"name": "hare", "password": "..."}}
    {"ok": null}   or   {"refused": "User \"hare\" already exists", "exit_code": 70}   or   {"failed": "..."}

``ok`` may be followed by ``warnings``, texts for the operator, such as which nodes of a cluster have not answered.

Long lists of the arguments come before, in lines of their own, and are empty in the request; so no line takes long to
decode::

    {"part": ["document", "queues"], "items": [{"name": "q1", ...}, {"name": "q2", ...}, ...]}

The socket has mode 0600 in a directory of mode 0700; every process that may open it may do everything. A unix
socket's path has at most 107 bytes, so both sides reach it through a short alias of its directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from struct import Struct
from typing import Any, Final, Self, TypeVar

from leveret.core.limits import (
    CONTROL_CLIENTS_MAX,
    CONTROL_LINE_BYTES_MAX,
    CONTROL_LINE_MEMORY_MAX,
    CONTROL_MEMORY_MIN,
    CONTROL_MEMORY_SHARE,
    CONTROL_STALLED_S,
)
from leveret.core.log.loggers import logger
from leveret.core.slices import SLICE_ITEMS
from leveret.core.transports import let_go
from leveret.management import json_text
from leveret.management.audit_log import OPERATOR
from leveret.management.errors import RefusedError
from leveret.management.verb_table import Verb, VerbTable, failure
from leveret.server.control_client import SOCKET, short_alias

log = logger(__name__)

T = TypeVar("T")

ROWS_AT_ONCE: Final = 50

_CREDENTIALS: Final = Struct("=iII")  # pid, uid, gid


class ControlServer:
    """Serves verbs on the data directory's socket.

    Args:
        data_dir: the caller holds its lock, so a socket found there belongs to a dead broker.
        verbs: by name; an iterator that one returns is sent as a list.
        memory_limit_bytes: returns the broker's memory limit; requests may take a part of it.
    """

    def __init__(
        self,
        data_dir: Path,
        verbs: Mapping[str, Verb],
        memory_limit_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._path = data_dir / SOCKET
        self._verbs = VerbTable(verbs)
        self._memory = _RequestMemory(memory_limit_bytes)
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Bind the socket under a draft name and rename it when its mode is set, so that it is never open to others."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        draft = self._path.with_suffix(".new")
        try:
            draft.unlink(missing_ok=True)
            with short_alias(draft) as short:
                listener.bind(short)
            draft.chmod(0o600)
            draft.replace(self._path)
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=CONTROL_LINE_BYTES_MAX
            )
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        self._path.unlink(missing_ok=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CONTROL_CLIENTS_MAX:
            log.warning("control client refused clients=%s", CONTROL_CLIENTS_MAX)
            writer.write(
                json_text.encode({"failed": f"{CONTROL_CLIENTS_MAX} clients are connected"}) + b"\n"
            )
            writer.close()
            return
        client = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        OPERATOR.set(_peer(writer))
        request = _Request(self._memory)
        try:
            while await _fill(request, reader):
                await _send(writer, await self._answer(request))
                writer.write(b"\n")
                await _drain(writer)
                if request.is_too_large:  # its other lines are not read
                    break
                await request.drop()
        except (ConnectionError, TimeoutError, ValueError) as error:
            log.warning("control client dropped by=%s reason=%s", OPERATOR.get(), error)
            writer.transport.abort()
        finally:
            writer.close()
            await request.drop()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            let_go(writer.transport)

    async def _answer(self, request: _Request) -> dict[str, Any]:
        try:
            name, arguments = request.verb_and_arguments()
        except RefusedError as error:
            return failure(None, error)
        return await self._verbs.answer(name, arguments)


class _RequestMemory:
    """The memory of the current requests: the estimated size of their decoded lines.

    Attributes:
        turn: held while a line is decoded, so that lines of many clients are decoded one at a time.
    """

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self.turn = asyncio.Lock()
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0

    def take(self, size_bytes: int, of_request_bytes: int) -> None:
        """Take memory for a line of a request, which has ``of_request_bytes`` already.

        Raises:
            RefusedError: a limit would be exceeded.
        """
        most_bytes = max(self._limit_bytes() // CONTROL_MEMORY_SHARE, CONTROL_MEMORY_MIN)
        if of_request_bytes + size_bytes > most_bytes // 2:
            raise RefusedError(
                f"the request takes more than {most_bytes // 2 >> 20} MiB of memory, a quarter of the broker's limit:"
                " send it in smaller ones, or raise the limit (ctl set_vm_memory_high_watermark)"
            )
        if self._taken_bytes + size_bytes > most_bytes:
            raise RefusedError(
                f"the requests under way take more than {most_bytes >> 20} MiB of memory: try again later"
            )
        self._taken_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._taken_bytes -= size_bytes


class _Request:
    """The lines of one request: its parts, then the request itself; used again for the client's next request.

    Attributes:
        memory: of all requests.
        is_too_large: the request was refused before its end.
    """

    def __init__(self, memory: _RequestMemory) -> None:
        self.memory = memory
        self._parts: dict[tuple[str, ...], list[list[Any]]] = {}
        self._size_bytes = 0
        self._request: Any = None
        self.is_too_large = False

    def is_complete_with(self, line: bytes) -> bool:
        """Decode a line; return whether the request is complete."""
        size_bytes = json_text.decoded_bytes(line)
        try:
            if size_bytes > CONTROL_LINE_MEMORY_MAX:
                raise RefusedError(f"not a request: a line of {size_bytes >> 20} MiB of values")
            self.memory.take(size_bytes, self._size_bytes)
        except RefusedError as error:
            log.warning("control request refused by=%s reason=%s", OPERATOR.get(), error)
            self._request, self.is_too_large = error, True
            return True
        self._size_bytes += size_bytes
        try:
            self._request = value = json_text.decode(line)
        except (ValueError, RecursionError) as error:
            self._request = RefusedError(f"not a request: {error}")
            return True
        match value:
            case {"part": list(path), "items": list(items)}:
                self._parts.setdefault(tuple(map(str, path)), []).append(items)
                return False
        return True

    def verb_and_arguments(self) -> tuple[str, Any]:
        """Return the verb's name, and its arguments with their parts.

        Raises:
            RefusedError: it is no request.
        """
        if isinstance(self._request, RefusedError):
            raise self._request
        if not isinstance(self._request, dict):
            raise RefusedError("not a request: no object")
        name, arguments = self._request.get("verb"), self._request.get("arguments", {})
        if not isinstance(name, str):
            raise RefusedError(f"unknown verb {name!r}")
        for path, parts in self._parts.items():
            place: Any = arguments
            for step in path[:-1]:
                place = place.get(step) if isinstance(place, dict) else None
            if not path or not isinstance(place, dict) or place.get(path[-1]) != []:
                raise RefusedError(f"not a request: a part of {'.'.join(path)}, which is no list")
            place[path[-1]] = _joined(parts)
        return name, arguments

    async def drop(self) -> None:
        """Free the parts in slices, and be ready for the next request."""
        self._request = None
        while self._parts:
            _, parts = self._parts.popitem()
            while parts:
                del parts[-1][-SLICE_ITEMS:]
                if not parts[-1]:
                    parts.pop()
                await asyncio.sleep(0)
        self.memory.give_back(self._size_bytes)
        self._size_bytes = 0


def _joined(parts: list[list[Any]]) -> list[Any]:
    """Return the items of all parts: in a list of that size at once, since one that grows is copied again and again."""
    items: list[Any] = [None] * sum(map(len, parts))
    start = 0
    for part in parts:
        items[start : start + len(part)] = part
        start += len(part)
    return items


async def _fill(request: _Request, reader: asyncio.StreamReader) -> bool:
    """Read a request; return False when the client has closed; TimeoutError: the client sends nothing."""
    while line := await _in_time(reader.readline(), "sent nothing"):
        async with request.memory.turn:
            began_s = time.monotonic()
            is_complete = request.is_complete_with(line)
            # Others run for as long between two lines that are decoded.
            await asyncio.sleep(time.monotonic() - began_s)
        if is_complete:
            return True
    return False


def _peer(writer: asyncio.StreamWriter) -> str:
    """Return the user and process at the other end, as far as the system tells."""
    peer: socket.socket = writer.get_extra_info("socket")
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return "control socket"
    process, user, _ = _CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    )
    return f"uid {user}, pid {process}"


async def _drain(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has read; TimeoutError: it reads nothing."""
    await _in_time(writer.drain(), "read nothing")


async def _in_time(awaited: Awaitable[T], why: str) -> T:
    try:
        async with asyncio.timeout(CONTROL_STALLED_S):
            return await awaited
    except TimeoutError:
        raise TimeoutError(f"{why} for {CONTROL_STALLED_S:g} s") from None


async def _send(writer: asyncio.StreamWriter, value: Any, levels: int = 2) -> None:
    """Write a value as JSON; a long list is encoded and freed in slices, rows as they are made.

    Encoding or freeing a hundred thousand rows at once would block the event loop. Rows are made no faster than
    the client reads.
    """
    if levels and isinstance(value, dict):
        for number, (name, each) in enumerate(value.items()):
            writer.write((b"," if number else b"{") + json_text.encode(name) + b":")
            await _send(writer, each, levels - 1)
        writer.write(b"}" if value else b"{}")
    elif isinstance(value, AsyncIterator):
        writer.write(b"[")
        rows: list[Any] = []
        separator = b""
        async for row in value:
            rows.append(row)
            if len(rows) >= ROWS_AT_ONCE:
                writer.write(separator + json_text.encode(rows)[1:-1])
                rows, separator = [], b","
                await _drain(writer)
        writer.write((separator + json_text.encode(rows)[1:-1] if rows else b"") + b"]")
    elif isinstance(value, list) and len(value) > SLICE_ITEMS:
        for start in range(0, len(value), SLICE_ITEMS):
            piece = value[start : start + SLICE_ITEMS]
            value[start : start + SLICE_ITEMS] = [None] * len(piece)
            writer.write((b"," if start else b"[") + json_text.encode(piece)[1:-1])
            del piece
            await _drain(writer)
            await asyncio.sleep(0)
        writer.write(b"]")
    else:
        writer.write(json_text.encode(value))
