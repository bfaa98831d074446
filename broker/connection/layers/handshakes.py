"""The TLS handshakes of a node, a few steps per round of the run queue.

A step costs the processor about a millisecond, nearly all of it for the signature by the broker's key: 0.6 ms with
RSA of 2048 bits, 4 ms with 4096. The event loops' own TLS takes it as soon as the bytes have come, thousands of them
in one turn of the loop. Here a handshake that has bytes to work on waits for its turn, and its socket is not read
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Final

STEPS_PER_ROUND: Final = 4
FIRST_READ_BYTES: Final = 64 * 1024
READ_BYTES_MAX: Final = 128 * 1024  # decrypted in about 0.2 ms, in 6 where each record has one byte
_PLAIN_BYTES: Final = (
    READ_BYTES_MAX + 64 * 1024
)  # with what OpenSSL has left over: a record and the handshake's rest


class Handshakes:
    """The handshakes of a node that can go on, in the order in which their bytes came, and the buffers of its TLS.

    Args:
        after_round: calls a function once, when the actors that are ready have had a turn.
    """

    def __init__(self, after_round: Callable[[Callable[[], None]], None]) -> None:
        self._after_round = after_round
        self._waiting: deque[Callable[[], None]] = deque()

    @cached_property
    def cipher(self) -> memoryview:
        """Where all connections of the node read to, one after the other.

        Not of the process: other threads, which may have a broker too, run during reads and while OpenSSL works.
        """
        return memoryview(bytearray(READ_BYTES_MAX))

    @cached_property
    def plain(self) -> memoryview:
        """Where all connections of the node decrypt to."""
        return memoryview(bytearray(_PLAIN_BYTES))

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, step: Callable[[], None]) -> None:
        """Call ``step`` when its turn has come; it does nothing when the socket is closed by then."""
        if not self._waiting:
            self._after_round(self._take_steps)
        self._waiting.append(step)

    def _take_steps(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), STEPS_PER_ROUND)):
                waiting.popleft()()
        finally:  # a step that fails does not keep the others from their turn
            if waiting:
                self._after_round(self._take_steps)
