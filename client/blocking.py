"""A connection for one thread: a non-blocking socket, plain or TLS, with one channel in confirm mode.

``step`` writes what the socket takes and returns the events that have come. The heartbeat is switched off in tune-ok:
a task that waits for its input for minutes could not send one. A dead peer is found by who waits for its confirms, and
by TCP's keep-alive otherwise.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import Any, Final

from leveret.amqp import methods
from leveret.amqp.fields import Method
from leveret.client.errors import BrokerError
from leveret.client.events import Answer, Event
from leveret.client.protocol import ClientProtocol, check_answer
from leveret.client.target import Target
from leveret.core.limits import FRAME_MAX_BYTES

CHANNEL: Final = 1
UNSENT_BYTES_MAX: Final = 1024 * 1024  # above, wait before publishing more
_READ_BYTES: Final = 256 * 1024
_READS: Final = 16  # in one step
_ANSWER_S: Final = 30.0
_CLOSE_S: Final = 5.0


class BlockingConnection:
    """An open connection; made by ``connect``. ``protocol`` is the connection without I/O."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        self._sock = sock
        self._place = str(target)
        self.protocol = ClientProtocol(target, frame_max=FRAME_MAX_BYTES)
        self._unsent = bytearray(self.protocol.take_output())
        self._events: list[Event] = []  # that came before an answer

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for several connections at once."""
        return self._sock.fileno()

    def send(self, data: bytes) -> None:
        """Append bytes to the output of ``step``."""
        self._unsent += data

    def step(self, wait_s: float) -> list[Event]:
        """Write, then read; wait so long at most if there is nothing to read and nothing can be written.

        Raises:
            BrokerError: the connection has ended, and all events before that have been returned.
        """
        events, self._events = self._events, []
        protocol = self.protocol
        if protocol.error is None:
            self._write()
            events += self._read()
        if not events and wait_s > 0 and protocol.error is None:
            self._wait(wait_s)
            self._write()
            events = self._read()
        if not events and protocol.error is not None:
            raise self._failed(str(protocol.error))
        return events

    def call(self, method: Method, timeout_s: float = _ANSWER_S, channel: int = CHANNEL) -> Any:
        """Send a request and return its answer; events that come before the answer are kept for ``step``.

        Raises:
            ChannelClosed: the broker closed the channel instead; ``open_channel`` opens it again.
            BrokerError: the connection has ended, or no answer came in time.
        """
        self.protocol.request(channel, method)
        self.send(self.protocol.take_output())
        return self._answer(method, channel, time.monotonic() + timeout_s)

    def open(self, deadline_s: float) -> None:
        """Wait until the broker has let the client in, and open the channel; raises as ``call``."""
        self._answer(methods.ConnectionOpen(), 0, deadline_s)
        self.open_channel(deadline_s - time.monotonic())

    def open_channel(self, timeout_s: float = _ANSWER_S) -> None:
        """Open the channel in confirm mode; raises as ``call``."""
        deadline_s = time.monotonic() + timeout_s
        for method in (methods.ChannelOpen(), methods.ConfirmSelect()):
            self.call(method, deadline_s - time.monotonic())

    def close(self) -> None:
        """Close the connection in order if that works within seconds; never raises for a lost one."""
        with contextlib.suppress(BrokerError, OSError):
            self.call(methods.ConnectionClose(200, "done"), _CLOSE_S, 0)
        self.abort()

    def abort(self) -> None:
        """Close the socket at once."""
        self._lost("it was closed")
        self._sock.close()

    def _answer(self, request: Method, channel: int, deadline_s: float) -> Method:
        earlier: list[Event] = []
        while (wait_s := deadline_s - time.monotonic()) > 0:
            events = self.step(wait_s)
            for place, event in enumerate(events):
                if isinstance(event, Answer) and event.channel == channel:
                    self._events = earlier + events[:place] + events[place + 1 :]
                    return check_answer(request, event.method)
            earlier += events
        raise self._failed(f"no answer to {request.NAME} in time")

    # The socket.

    def _write(self) -> None:
        try:
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = self._sock.send(view[: 4 * _READ_BYTES])
                del self._unsent[:sent]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._unsent.clear()  # what has come before the end is still read
            if not select.select([self._sock], [], [], 0)[0]:
                self._lost(error)

    def _read(self) -> list[Event]:
        events: list[Event] = []
        try:
            for _ in range(_READS):
                data = self._sock.recv(_READ_BYTES)
                if not data:
                    self._lost("the broker closed it")
                    break
                events += self.protocol.receive(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._lost(error)
        if answers := self.protocol.take_output():
            self.send(answers)
            self._write()
        return events

    def _wait(self, wait_s: float) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        poll.poll(max(1, int(wait_s * 1000)))

    def _lost(self, why: object) -> None:
        self.protocol.end(BrokerError(f"the connection is lost: {why}"))

    def _failed(self, why: str) -> BrokerError:
        return BrokerError(f"{self._place}: {why}")


def connect(
    target: Target, timeout_s: float, context: ssl.SSLContext | None = None, server_name: str = ""
) -> BlockingConnection:
    """Return an open connection.

    Args:
        target: where to.
        timeout_s: for all of it.
        context: of TLS, if the target has TLS; None: the machine's authorities are trusted.
        server_name: the name in the broker's certificate; empty: the host.

    Raises:
        BrokerError: host, port, TLS, user, vhost or permissions are not accepted.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        sock = socket.create_connection((target.host, target.port), timeout_s)
    except OSError as error:
        raise BrokerError(f"{target}: cannot connect: {error}") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if target.has_tls:
            context = context or ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=server_name or target.host)
        sock.setblocking(False)
        connection = BlockingConnection(sock, target)
        connection.open(deadline_s)
    except OSError as error:
        sock.close()
        raise BrokerError(f"{target}: TLS or the connection failed: {error}") from None
    except BaseException:
        sock.close()
        raise
    return connection
