"""Operations of ``turns.py`` on listeners with TLS, and with the PROXY protocol."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from harness.peer import Peer, message
from operations.operation import Operations, declare

if TYPE_CHECKING:
    from operations.rig import Rig

OPERATIONS = Operations()
operation = OPERATIONS.add


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _hello() -> bytes:
    """Return the first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _trusting().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def _connected(address: tuple[str, int], count: int) -> list[socket.socket]:
    return [socket.create_connection(address, 60) for _ in range(count)]


@operation("TLS handshake", "1,000 begun at once, key of RSA 2048")
def _(rig: Rig) -> None:
    hello = _hello()
    clients = _connected(rig.tls, rig.scaled(1_000))
    rig.measure()
    for each in clients:
        each.sendall(hello)
    for each in clients:
        assert each.recv(1)
    for each in clients:
        each.close()


@operation("TLS handshake", "500 clients log in at once")
def _(rig: Rig) -> None:
    address = rig.tls
    rig.measure()
    peers: list[Peer] = []
    threads = [
        threading.Thread(target=lambda: peers.append(Peer(address, tls=_trusting())))
        for _ in range(rig.scaled(500))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for peer in peers:
        peer.drop()


@operation("TLS handshake", "1,000 x 32 KiB that are none")
def _(rig: Rig) -> None:
    clients = _connected(rig.tls, rig.scaled(1_000))
    rig.measure()
    for each in clients:
        with suppress(ConnectionError):
            each.sendall(b"\x16\x03\x01\x40\x00" + bytes(32_000))
    time.sleep(6)  # then the time for a handshake is over
    for each in clients:
        each.close()


@operation("basic.publish over TLS", "10^5 messages in one write")
def _(rig: Rig) -> None:
    peer = Peer(rig.tls, tls=_trusting())
    declare(peer, ["q"])
    messages = message(1, b"q") * 10_000
    rig.measure()
    for _ in range(10):
        peer.raw(messages)


@operation("basic.publish over TLS", "a body of 1 MB in records of one byte")
def _(rig: Rig) -> None:
    peer = Peer(rig.tls, tls=_trusting())
    declare(peer, ["q"])
    data = message(1, b"q", bytes(rig.scaled(1_000_000)))
    rig.measure()
    for octet in data:
        peer.raw(bytes((octet,)))


@operation("PROXY header", "2,000 of 64 KiB at once")
def _(rig: Rig) -> None:
    signature = b"\r\n\r\n\x00\r\nQUIT\n"
    address = bytes(12)
    header = signature + b"\x21\x11\xff\xff" + address + bytes(65_535 - len(address))
    clients = _connected(rig.proxied, rig.scaled(2_000))
    rig.measure()
    for each in clients:
        each.sendall(header + b"AMQP\x00\x00\x09\x01")
    for each in clients:
        each.close()
