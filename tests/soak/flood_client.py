"""What publishers and consumers of a flood have in common: a life for each life of the broker."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod

from conformance.raw import Channel, Connection
from soak import flood_records as records
from soak.board import CPU_NS, IS_OVER, IS_READY, QUEUES, Board

PAUSE_S = 0.01  # between two turns, so that four clients leave the broker the processors
READ_BYTES = 1 << 20


class Client(ABC):
    """One process's work.

    Args:
        board: what all know.
        process: which one it is.

    Attributes:
        broker_stays: the broker lives on when the connection ends, or refuses to begin one.
    """

    def __init__(self, board: Board, process: int) -> None:
        self.board = board
        self.own = board.of(process)
        self.broker_stays = False

    def live(self, address: tuple[str, int]) -> None:
        """Work with one life of the broker until it ends, or all is over."""
        connection = None
        is_refused = self.broker_stays
        try:
            connection = Connection(address)
            assert connection.open().name == "connection.open-ok"
            self.begin(connection.socket, _declared(connection))
            is_refused = False
            connection.socket.setblocking(False)
            self.buffer += connection.buffer
            while not self.board.numbers[IS_OVER] and self.turn():
                self.own[CPU_NS] = time.process_time_ns()
                time.sleep(PAUSE_S)
        except (ConnectionError, TimeoutError, AssertionError) as error:
            is_killed = isinstance(error, ConnectionError) or (connection and connection.ended)
            if not is_killed and not is_refused:
                raise
        finally:
            self.own[IS_READY] = 0
            if connection is not None:
                connection.drop()

    def begin(self, connected: socket.socket, channel: Channel) -> None:
        """Begin a life."""
        self.socket = connected
        self.buffer = bytearray()
        self._prepare(channel)

    @abstractmethod
    def _prepare(self, channel: Channel) -> None:
        """Tell the broker what this client is there for."""

    @abstractmethod
    def turn(self) -> bool:
        """Do what there is to do; return whether the connection is there."""

    def _read(self) -> bool:
        """Read what there is; return whether more can follow."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return True
        self.buffer += data
        return bool(data)


def _declared(connection: Connection) -> Channel:
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    channel = connection.channel()
    assert channel.number == records.CHANNEL
    for queue_no in range(QUEUES):
        channel.ok("queue.declare", queue=records.queue_name(queue_no), durable=True)
    return channel
