"""A broker whose answers a test scripts: it takes one publisher after another, on a real socket.

A script is called for each message and says what the broker answers, by the methods of ``Peer``. The messages of all
connections are kept in ``messages``, in the order in which they came.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from leveret.amqp import kernel, methods, spec
from leveret.amqp.fields import Method
from leveret.core.message import Message, exchange_and_key

Script = Callable[["Peer", int, Message], None]

TIMEOUT_S = 20.0


class Peer:
    """The broker's end of a connection; ``number`` counts the connections from 1."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.number = number
        self.is_open = True
        self._sock = sock

    def send(self, method: Method, channel: int = 1) -> None:
        self._sock.sendall(methods.method_frame(channel, methods.encode(method)))

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.send(methods.BasicAck(tag, multiple))

    def nack(self, tag: int, multiple: bool = False) -> None:
        self.send(methods.BasicNack(tag, multiple, False))

    def give_back(self, message: Message) -> None:
        exchange, key = exchange_and_key(message[0])
        method = methods.BasicReturn(312, "NO_ROUTE", exchange.decode(), key.decode())
        payload = methods.encode(method)
        self._sock.sendall(kernel.content(1, payload, 4096, message[1], message[2]))

    def raw(self, data: bytes) -> None:
        self._sock.sendall(data)

    def hang_up(self) -> None:
        self.is_open = False
        self._sock.shutdown(socket.SHUT_RDWR)


def ack_each(peer: Peer, tag: int, _message: Message) -> None:
    peer.ack(tag)


class ScriptedBroker:
    """Listens on a port of its own.

    Args:
        script: called with the peer, the delivery tag and the message.
        answers: methods by which a request of the handshake is answered instead, by the request's class.
    """

    def __init__(
        self, script: Script = ack_each, answers: dict[type[Method], Method] | None = None
    ) -> None:
        self.messages: list[Message] = []
        self.logins: list[bytes] = []
        self.failures: list[BaseException] = []
        self._script = script
        self._answers = answers or {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def uri(self) -> str:
        return f"amqp://127.0.0.1:{self.port}/"

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.messages]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; a failure in the broker's thread is the test's."""
        # Closing does not wake accept(); a connection does.
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S):
            self._listener.close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        assert not self.failures

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            with sock:
                sock.settimeout(TIMEOUT_S)
                try:
                    if not self._talk(Peer(sock, number), sock):
                        return
                except ConnectionError:
                    continue  # the publisher has gone, which a test may want
                except BaseException as error:  # noqa: BLE001 - raised by ``stop``
                    self.failures.append(error)
                    return

    def _talk(self, peer: Peer, sock: socket.socket) -> bool:
        """Serve one connection; False: it was the one that ``stop`` makes."""
        greeting = sock.recv(8)
        if greeting != spec.PROTOCOL_HEADER:
            return False
        peer.send(methods.ConnectionStart(), 0)
        scanner = kernel.Scanner(131_072, 1 << 30)
        tag = 0
        while peer.is_open:
            data = sock.recv(1 << 16)
            if not data:
                return True
            for run in scanner.scan(data):
                if run[0] == spec.METHOD:
                    self._answer(peer, run[1], methods.decode(run[2], run[3]))
                elif run[0] == spec.PUBLISH:
                    for message in run[4]:
                        tag += 1
                        self.messages.append(message)
                        if peer.is_open:
                            self._script(peer, tag, message)
        return True

    def _answer(self, peer: Peer, channel: int, request: Any) -> None:
        if isinstance(request, methods.ConnectionStartOk):
            self.logins.append(request.response)
        answer = self._answers.get(type(request)) or _ANSWERS.get(type(request))
        if answer is not None:
            peer.send(answer, channel)
        if isinstance(request, methods.ConnectionClose):
            peer.is_open = False


_ANSWERS: dict[type[Method], Method] = {
    methods.ConnectionStartOk: methods.ConnectionTune(2047, 131_072, 60),
    methods.ConnectionOpen: methods.ConnectionOpenOk(),
    methods.ChannelOpen: methods.ChannelOpenOk(),
    methods.ConfirmSelect: methods.ConfirmSelectOk(),
    methods.ConnectionClose: methods.ConnectionCloseOk(),
}


@contextmanager
def scripted(
    script: Script = ack_each, answers: dict[type[Method], Method] | None = None
) -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker(script, answers)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
