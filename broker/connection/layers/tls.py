"""TLS between a socket's transport and its connection: OpenSSL works in memory, the event loop on the socket.

To the socket this object is the protocol, to the connection it is the transport. A read is as large as the connection
wants it, into one buffer of the node, and all of it is decrypted; a paused connection is given nothing and its socket
is not read; the write buffer is the socket's.

OpenSSL's buffers grow and never shrink, so bytes go in and come out in pieces of one TLS record: a connection keeps
some 70 KiB, however much it once sent or received.

Turned down: the event loops' own TLS. They work on a handshake as soon as its bytes come, so that a thousand clients
that connect together stop the loop for a second; a connection that has ended is a cycle of objects; and the bytes that
they keep decrypted are counted nowhere.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.connection.layers.handshakes import FIRST_READ_BYTES, READ_BYTES_MAX
from leveret.core.transports import let_go, write_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.broker.connection.layers.connected import Connected
    from leveret.broker.connection.layers.credentials import Credentials
    from leveret.broker.connection.layers.handshakes import Handshakes
    from leveret.core.clock import Clock

RECORD_BYTES: Final = 16 * 1024
HANDSHAKE_BYTES_MAX: Final = 32 * 1024  # of a client; its chain of certificates takes some 5 KiB


class TlsTransport(asyncio.BufferedProtocol):
    """One socket with TLS.

    Args:
        credentials: of the listener.
        connected: is connected when the handshake is complete.
        handshakes: of the node, with its buffer.
        clock: for the time that a handshake may take.
    """

    __slots__ = (
        "_connected", "_credentials", "_error", "_handshakes", "_has_ended", "_incoming",
        "_is_begun", "_is_connected", "_is_due", "_is_paused", "_is_raw_paused", "_loop",
        "_outgoing", "_raw", "_read_bytes", "_received_bytes", "_ssl", "_timer", "_unread",
    )  # fmt: skip

    _raw: asyncio.Transport
    _ssl: ssl.SSLObject

    def __init__(
        self, credentials: Credentials, connected: Connected, handshakes: Handshakes, clock: Clock
    ) -> None:
        self._credentials = credentials
        self._connected = connected
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._unread: bytes | memoryview = b""  # ciphertext that OpenSSL has not got yet
        self._received_bytes = 0  # of the handshake
        self._read_bytes = HANDSHAKE_BYTES_MAX + 1
        self._is_begun = self._is_connected = False  # the handshake has begun, is complete
        self._is_paused = self._is_raw_paused = False
        self._is_due = False  # to read on
        self._has_ended = False  # the peer has sent its last byte
        self._error: Exception | None = None
        self._timer = clock.call_later(credentials.handshake_s, self._timed_out)

    # -- the socket's protocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        if not self._connected.arrived(transport):
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        return self._handshakes.cipher[: self._read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._handshakes.cipher[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Take the bytes of a read, or those behind a PROXY header."""
        if self._is_connected and not (self._is_paused or self._is_due):
            self._unread = data
            self._read()
            return
        self._unread = bytes(self._unread) + bytes(data)
        if self._is_connected:
            self._pause_raw()
        else:
            self._shake_hands_later(len(data))

    def eof_received(self) -> bool:
        """Keep the socket while the connection is paused, or there are bytes that came before the end."""
        if not self._is_connected:
            self._fail("the client closed the socket")
            return False
        self._has_ended = True
        if self._is_paused or self._is_due or self._has_more():
            return True
        self._connected.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if not self._is_connected and self._error is None:
            self._refuse(f"socket lost: {exc}" if exc else "the client closed the socket")
        self._unread = b""
        let_go(self._raw)
        self._connected.connection_lost(self._error or exc)

    def pause_writing(self) -> None:
        self._connected.pause_writing()

    def resume_writing(self) -> None:
        self._connected.resume_writing()

    # -- the handshake -------------------------------------------------------------------------

    def _shake_hands_later(self, received_bytes: int) -> None:
        self._received_bytes += received_bytes
        if self._received_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(f"more than {HANDSHAKE_BYTES_MAX} bytes")
        elif not self._is_raw_paused:
            self._pause_raw()
            self._handshakes.wait(self._shake_hands)

    def _shake_hands(self) -> None:
        """Work on the bytes that have come: it is this handshake's turn."""
        if self._raw.is_closing():
            return
        if not self._is_begun:
            self._is_begun = True
            self._ssl = self._credentials.context.wrap_bio(self._incoming, self._outgoing, True)
        self._incoming.write(self._unread)
        self._unread = b""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            self._resume_raw()
        except ssl.SSLError as error:
            self._send()  # an alert, which tells the client
            self._fail(reason_of(error))
        else:
            self._send()
            self._shaken()

    def _shaken(self) -> None:
        problem = self._credentials.problem(self._ssl)
        if problem:
            self._fail(problem)
            return
        self._timer.cancel()
        self._is_connected = True
        self._read_bytes = FIRST_READ_BYTES
        self._connected.connection_made(self)  # type: ignore[arg-type]

    def _timed_out(self) -> None:
        self._fail(f"not complete within {self._credentials.handshake_s:g} s")

    def _fail(self, reason: str) -> None:
        """Close a socket whose handshake has failed, without waiting for a client that does not read."""
        if self._error is not None:
            return
        self._refuse(reason)
        if self._raw.get_write_buffer_size():
            self._raw.abort()
        else:
            self._raw.close()

    def _refuse(self, reason: str) -> None:
        reason = f"TLS handshake failed: {reason}"
        self._error = ConnectionError(reason)
        self._connected.refused(reason, self._received_bytes > 0)

    # -- reading -------------------------------------------------------------------------------

    def _read(self) -> None:
        """Decrypt what has come, and give it to the connection."""
        try:
            size, is_end = self._decrypt()
        except ssl.SSLError as error:
            self._send()
            self._break(error)
            return
        self._has_ended = self._has_ended or is_end
        self._unread = bytes(self._unread)  # the buffer is needed for other reads
        has_more = not is_end and self._has_more()
        if size:
            self._connected.data_received(bytes(self._handshakes.plain[:size]))
        if self._is_paused:  # by what it has read; the end waits as well
            return
        if has_more:
            self._pause_raw()
            self._read_later()
        elif self._has_ended:
            self._connected.eof_received()
            self.close()
        else:
            self._resume_raw()

    def _decrypt(self) -> tuple[int, bool]:
        """Return how many bytes there are in the node's buffer, and whether the client has ended its stream.

        Raises:
            ssl.SSLError: a record is damaged.
        """
        connection, incoming, plain = self._ssl, self._incoming, self._handshakes.plain
        room, size = len(plain), 0
        while room and (incoming.pending or connection.pending() or self._feed()):
            try:
                count: Any = connection.read(room, plain[size:])
            except ssl.SSLWantReadError:  # a part of a record
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            if not count:
                return size, True
            size, room = size + count, room - count
        return size, False

    def _feed(self) -> bool:
        """Give OpenSSL the next bytes; return whether there were some."""
        unread = self._unread
        if not unread:
            return False
        if len(unread) <= RECORD_BYTES:
            self._incoming.write(unread)
            self._unread = b""
        else:
            view = memoryview(unread)
            self._incoming.write(view[:RECORD_BYTES])
            self._unread = view[RECORD_BYTES:]
        return True

    def _has_more(self) -> bool:
        return bool(self._unread or self._incoming.pending or self._ssl.pending())

    def _read_later(self) -> None:
        if not self._is_due and not self._is_paused:
            self._is_due = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_due = False
        if not self._is_paused and not self._raw.is_closing():
            self._read()

    def _pause_raw(self) -> None:
        if not self._is_raw_paused and not self._raw.is_closing():
            self._is_raw_paused = True
            self._raw.pause_reading()

    def _resume_raw(self) -> None:
        if self._is_raw_paused and not self._raw.is_closing():
            self._is_raw_paused = False
            self._raw.resume_reading()

    # -- the connection's transport ------------------------------------------------------------

    def set_protocol(self, protocol: Any) -> None:
        self._connected = protocol

    def get_protocol(self) -> Any:
        return self._connected

    def limit_reads(self, read_bytes: int) -> int:
        """Read 64 KiB at a time, or 128 where more is wanted.

        Returns:
            The size of a full read when it is decrypted: the half, since small records are half overhead.
        """
        self._read_bytes = FIRST_READ_BYTES if read_bytes <= FIRST_READ_BYTES else READ_BYTES_MAX
        return self._read_bytes // 2

    def pause_reading(self) -> None:
        self._is_paused = True
        self._pause_raw()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._has_ended or self._has_more():
            self._read_later()
        elif not self._is_due:
            self._resume_raw()

    def write(self, data: bytes) -> None:
        if self._raw.is_closing() or not data:
            return
        connection, outgoing = self._ssl, self._outgoing
        try:
            if len(data) <= RECORD_BYTES:
                connection.write(data)
                self._raw.write(outgoing.read())
                return
            view, pieces = memoryview(data), []
            for start in range(0, len(data), RECORD_BYTES):
                connection.write(view[start : start + RECORD_BYTES])
                pieces.append(outgoing.read())
        except ssl.SSLError as error:
            self._break(error)
        else:
            write_parts(self._raw, pieces)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write all parts; a record has several of them."""
        self.write(b"".join(parts))

    def _send(self) -> None:
        """Write what OpenSSL says by itself."""
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _break(self, error: ssl.SSLError) -> None:
        self._error = ConnectionError(f"TLS: {reason_of(error)}")
        self._raw.abort()

    def _end(self) -> None:
        """Tell the peer that nothing more comes."""
        with suppress(ssl.SSLError):  # it asks for the peer's answer, which nobody waits for
            self._ssl.unwrap()
        self._send()

    def can_write_eof(self) -> bool:
        return self._raw.can_write_eof()

    def write_eof(self) -> None:
        self._end()
        self._raw.write_eof()

    def close(self) -> None:
        if not self._raw.is_closing():
            self._end()
            self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._raw.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the socket's, and as ``ssl_object`` the TLS."""
        return self._ssl if name == "ssl_object" else self._raw.get_extra_info(name, default)


def reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words, such as ``no shared cipher``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"client certificate refused: {error.verify_message}"
    if not error.reason:
        return str(error)
    return _EXPLAINED.get(error.reason, error.reason.lower().replace("_", " "))


_EXPLAINED: Final = {
    "HTTP_REQUEST": "an HTTP client without TLS",
    "WRONG_VERSION_NUMBER": "a client without TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not know the authority of the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client refuses the broker's certificate: it has expired",
}
