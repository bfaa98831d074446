"""The connection to a broker: one blocking thread, one non-blocking socket, plain or TLS.

``step`` writes what the socket takes and returns the events that have come. The heartbeat is switched off in tune-ok:
a task that waits for its input for minutes could not send one. A dead peer is found by ``confirmTimeout`` while
confirms are due, and by TCP's keep-alive otherwise.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from typing import Any, Final, Self

from leveret.amqp import methods, spec
from leveret.amqp.fields import Method
from leveret.amqp.tables import typed_table
from leveret.core.limits import FRAME_MAX_BYTES
from leveret.spark.publish.errors import ConnectionFailed
from leveret.spark.publish.incoming import CHANNEL, Answer, Event, Incoming, closed
from leveret.spark.publish.target import Target, Tls

UNSENT_BYTES_MAX: Final = 1024 * 1024  # above, wait before publishing more
_READ_BYTES: Final = 256 * 1024
_READS: Final = 16  # in one step
_CLOSE_S: Final = 5.0
_CAPABILITIES: Final = (
    "authentication_failure_close",
    "publisher_confirms",
    "basic.nack",
    "connection.blocked",
)


class Client:
    """An open connection with one channel in confirm mode; made by ``connect``."""

    def __init__(self, sock: socket.socket, place: str) -> None:
        self.frame_max = FRAME_MAX_BYTES
        self._sock = sock
        self._place = place
        self._incoming = Incoming()
        self._unsent = bytearray()
        self._events: list[Event] = []
        self._is_ended = False

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for several connections at once."""
        return self._sock.fileno()

    def send(self, data: bytes) -> None:
        """Append bytes to those that ``step`` writes."""
        self._unsent += data

    def step(self, wait_s: float) -> list[Event]:
        """Write, then read; wait so long at most if there is nothing to read and nothing can be written.

        Raises:
            ConnectionFailed: the connection is lost, after all events before it have been returned.
        """
        if self._is_ended:
            raise self._lost("it was closed")
        self._write()
        events = self._read()
        if events or wait_s <= 0:
            return events
        return self._later(wait_s)

    def _later(self, wait_s: float) -> list[Event]:
        """Wait, then write and read; ConnectionFailed: the connection has ended and all events are known."""
        if not self._is_ended:
            self._wait(wait_s)
            self._write()
            events = self._read()
            if events or not self._is_ended:
                return events
        raise self._lost("the broker closed it")

    def close(self) -> None:
        """Close the connection in order if that works within seconds; never raises for a lost one."""
        with contextlib.suppress(ConnectionFailed, OSError):
            if not self._is_ended:
                self._send_method(0, methods.ConnectionClose(200, "done"))
                self._await(methods.ConnectionCloseOk, time.monotonic() + _CLOSE_S)
        self._sock.close()

    def abort(self) -> None:
        """Close the socket at once."""
        self._sock.close()

    # Opening.

    def open(self, target: Target, deadline_s: float) -> Self:
        """Log in, open the channel, select confirms; ConnectionFailed: the broker refuses."""
        self.send(spec.PROTOCOL_HEADER)
        start = self._await(methods.ConnectionStart, deadline_s)
        if b"PLAIN" not in start.mechanisms.split():
            raise self._failed("the broker does not offer the mechanism PLAIN")
        capabilities = dict.fromkeys(_CAPABILITIES, True)
        properties = {"product": "leveret", "capabilities": capabilities}
        response = f"\0{target.user}\0{target.password}".encode()
        self._send_method(0, methods.ConnectionStartOk(typed_table(properties), "PLAIN", response))
        tune = self._await(methods.ConnectionTune, deadline_s)
        self.frame_max = min(tune.frame_max or FRAME_MAX_BYTES, FRAME_MAX_BYTES)
        self._send_method(0, methods.ConnectionTuneOk(tune.channel_max, self.frame_max, 0))
        self._send_method(0, methods.ConnectionOpen(target.vhost))
        self._await(methods.ConnectionOpenOk, deadline_s)
        self._send_method(CHANNEL, methods.ChannelOpen())
        self._await(methods.ChannelOpenOk, deadline_s)
        self._send_method(CHANNEL, methods.ConfirmSelect())
        self._await(methods.ConfirmSelectOk, deadline_s)
        return self

    def _await(self, wanted: type[Method], deadline_s: float) -> Any:
        """Return the answer; events of other kinds are dropped, a later one is kept for ``step``."""
        while True:
            wait_s = deadline_s - time.monotonic()
            if wait_s <= 0:
                raise self._failed(f"no {wanted.NAME} from the broker in time")
            events = self.step(wait_s)
            for place, event in enumerate(events):
                if not isinstance(event, Answer):
                    continue
                if isinstance(event.method, methods.ConnectionClose | methods.ChannelClose):
                    raise self._failed(str(closed(event.method, 0)))
                if isinstance(event.method, wanted):
                    self._events += events[place + 1 :]
                    return event.method

    def _send_method(self, channel: int, method: Method) -> None:
        self.send(methods.method_frame(channel, methods.encode(method)))

    # The socket.

    def _write(self) -> None:
        try:
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = self._sock.send(view[: 4 * _READ_BYTES])
                del self._unsent[:sent]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self._unsent.clear()  # what has come before the end is still read
            self._is_ended = not self._can_read()

    def _can_read(self) -> bool:
        return bool(select.select([self._sock], [], [], 0)[0])

    def _read(self) -> list[Event]:
        events, self._events = self._events, []
        try:
            for _ in range(_READS):
                data = self._sock.recv(_READ_BYTES)
                if not data:
                    self._is_ended = True
                    break
                events += self._incoming.feed(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._is_ended = True
        return events

    def _wait(self, wait_s: float) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        poll.poll(max(1, int(wait_s * 1000)))

    def _lost(self, why: str) -> ConnectionFailed:
        return self._failed(f"the connection is lost: {why}")

    def _failed(self, why: str) -> ConnectionFailed:
        return ConnectionFailed(f"{self._place}: {why}")


def connect(target: Target, tls: Tls, timeout_s: float) -> Client:
    """Return an open connection.

    Raises:
        ConnectionFailed: host, port, TLS, user, vhost or permissions are not accepted.
        OptionError: a file of TLS cannot be used.
    """
    deadline_s = time.monotonic() + timeout_s
    context = tls.context() if target.has_tls else None
    try:
        sock = socket.create_connection((target.host, target.port), timeout_s)
    except OSError as error:
        raise ConnectionFailed(f"{target}: cannot connect: {error}") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=tls.server_name or target.host)
        sock.setblocking(False)
        return Client(sock, str(target)).open(target, deadline_s)
    except OSError as error:
        sock.close()
        raise ConnectionFailed(f"{target}: TLS or the connection failed: {error}") from None
    except struct.error:
        sock.close()
        raise ConnectionFailed(f"{target}: user or vhost is longer than AMQP allows") from None
    except BaseException:
        sock.close()
        raise
