"""Accepting: takes new connections from one listening socket, a few per turn of the event loop.

asyncio's server accepts the whole backlog in one turn, with thousands of connections for seconds, and stops for a
second when descriptors run out; uvloop's closes the connection. To accept a socket costs an eighth of a transport with
its reader. So a turn accepts ``ACCEPTS_PER_TURN`` sockets and makes ``TRANSPORTS_PER_TURN`` transports; those whose
clients have left get none.

Sockets of silent clients have a line of their own, so clients that have sent something do not wait behind a flood of
them. From the line of the others the oldest and the newest socket are taken alternately: a client that comes behind
hundreds waits for one turn, not for all of them, and no client waits more than twice as long as in the order of
arrival. When this line has ``WAITING_MAX`` sockets, further ones wait in the kernel.

The broker's own sockets never use up the descriptors (``admission.py``); where something else in the process has taken
them, sockets without an open connection make room and the listener tries again soon.
"""

from __future__ import annotations

import asyncio
import socket
import types
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.connection.address import UNIX
from leveret.broker.connection.connection_log import closed_before_first_byte
from leveret.broker.connection.handshake import HEADER_BYTES
from leveret.core.log.loggers import logger
from leveret.core.system.shortage import DESCRIPTORS, MEMORY

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from leveret.broker.connection.sockets import Listening, Sockets

log = logger(__name__)

ACCEPTS_PER_TURN: Final = 128  # of one listening socket; each costs about 0.02 ms
TRANSPORTS_PER_TURN: Final = 16  # each costs about 0.15 ms
WAITING_MAX: Final = 512  # accepted sockets with a first byte and without a transport
RETRY_S: Final = 0.1
_GONE: Final = b""


class Accepting:
    """Accepts on a duplicate of one socket until ``close``, which closes the duplicate."""

    def __init__(self, sockets: Sockets, listening: Listening) -> None:
        self._sockets = sockets
        self._source = listening
        self._listening = listening.socket.dup()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[socket.socket, bytes]] = deque()
        self._silent: deque[socket.socket] = deque()
        self._is_due = False  # the next turn makes more transports
        self._coming: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._begin()

    def __len__(self) -> int:
        """Return how many sockets are accepted and have no transport yet."""
        return len(self._coming) + len(self._waiting) + len(self._silent)

    def _begin(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening.fileno(), self._accept_some)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._retry is None:
            self._loop.remove_reader(self._listening.fileno())
        else:
            self._retry.cancel()
        self._listening.close()

    def _accept_some(self) -> None:
        if not self._sockets.has_listener:
            self._pause()
            return
        for _ in range(ACCEPTS_PER_TURN):
            if len(self._waiting) >= WAITING_MAX:
                break
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionError:  # the peer was faster
                continue
            except OSError as error:
                self._failed(error)
                break
            self._take(accepted, peer or (UNIX, 0))
        if not self._is_due:
            self._connect_some()

    def _take(self, accepted: socket.socket, peer: Any) -> None:
        accepted.setblocking(False)
        first = self._first_bytes(accepted)
        if first == _GONE:
            closed_before_first_byte(peer)
            accepted.close()
        elif not self._sockets.has_room(peer):
            accepted.close()
        elif first:
            self._waiting.append((accepted, first))
        else:
            self._silent.append(accepted)

    def _first_bytes(self, accepted: socket.socket) -> bytes | None:
        """Return a client's first bytes; None without, and ``_GONE`` if they never come.

        A layer below AMQP reads its bytes itself.
        """
        size, flags = (HEADER_BYTES, 0) if self._source.is_plain else (1, socket.MSG_PEEK)
        try:
            return accepted.recv(size, flags)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:  # the client has reset it
            return _GONE

    def _connect_some(self) -> None:
        waiting, silent = self._waiting, self._silent
        for number in range(min(len(waiting), TRANSPORTS_PER_TURN)):
            self._connect(*(waiting.pop() if number % 2 else waiting.popleft()))
        for _ in range(min(len(silent), TRANSPORTS_PER_TURN)):
            self._connect(silent.popleft(), b"")
        self._is_due = bool(waiting or silent)
        if self._is_due:
            self._loop.call_soon(self._connect_some)

    def _connect(self, accepted: socket.socket, first: bytes) -> None:
        """Make a transport of an accepted socket.

        Its first step is run at once. That of a task would come an iteration of the loop later, behind a drain. The
        next drain comes behind its second step, and starts the reader.
        """
        new_protocol = partial(self._sockets.new_protocol, self._source, first)
        connecting = self._loop.connect_accepted_socket(new_protocol, accepted)
        try:
            waiter = connecting.send(None)
        except OSError:  # the peer has reset it meanwhile
            accepted.close()
            return
        self._sockets.runtime.turns.scheduler.put_off_drain()
        task = self._loop.create_task(_rest_of(connecting, waiter, accepted))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    def _pause(self) -> None:
        """Try again later, so that the loop does not come back at once and for nothing."""
        self._loop.remove_reader(self._listening.fileno())
        self._retry = self._loop.call_later(RETRY_S, self._begin)

    def _failed(self, error: OSError) -> None:
        self._pause()
        log.warning("cannot accept connections, trying again error=%s", error.strerror)
        if error.errno in DESCRIPTORS | MEMORY:
            for _ in range(TRANSPORTS_PER_TURN):
                self._sockets.admission.close_oldest()


async def _rest_of(
    connecting: Coroutine[Any, Any, object], waiter: object, accepted: socket.socket
) -> None:
    """Await the rest of a coroutine that waits for ``waiter``."""
    try:
        await _resumed(connecting, waiter)
    except OSError:  # as above
        accepted.close()


@types.coroutine
def _resumed(
    connecting: Coroutine[Any, Any, object], waiter: object
) -> Generator[Any, Any, object]:
    yield waiter
    return (yield from connecting.__await__())
