"""Publishers with confirms and a group of consumers for many queues, fast enough for a soak.

Each is a process of its own, works with plain sockets, and goes from one life of the broker to the next.
They know of every message whether it was confirmed, whether it was ever delivered, and whether its ack has to
be on the disk: ``board.py``. Checked are the bodies, the order of first deliveries in each queue, that
messages delivered before come with the redelivered flag, that no ack is taken back that has to be on the
disk (``flood_consumer.py`` says which), and that nothing confirmed is lost.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rigs.nodes import clean_environment
from rigs.waiting import wait_until
from soak.board import (
    CONSUMER_NOS,
    CONSUMERS,
    COUNT,
    CPU_NS,
    IS_ENOUGH,
    IS_OVER,
    LIVES,
    OUTSTANDING,
    PUBLISHER_NOS,
    PUBLISHERS,
    Board,
)

TESTS = Path(__file__).parents[1]
PROCESS = Path(__file__).with_name("flood_process.py")
END_S = 30.0
_PIECE_BYTES = 1 << 20


class Flood:
    """Works with every broker it is given the address of.

    Args:
        folder: for what its processes share and say.
        rate: messages per second that are wanted.
        messages_max: it publishes no more than that.
    """

    def __init__(self, folder: Path, rate: float, messages_max: int) -> None:
        capacity = messages_max // PUBLISHERS
        path = folder / "board"
        self._board = Board(path, capacity)
        self._lives = 0
        self._logs = [folder / f"client{number}.log" for number in range(PUBLISHERS + CONSUMERS)]
        self._processes = [
            _started(log, str(path), str(capacity), str(number), str(rate))
            for number, log in enumerate(self._logs)
        ]

    def serve(self, host: str, port: int, *, stays: bool = False) -> None:
        """Work with the next life of the broker, after all have noticed the end of the last one.

        ``stays``: it is the only life, and connections that end are opened again.
        """
        wait_until(lambda: self.error or self._have_lived(), "clients live on")
        assert not self.error, self.error
        self._lives += 1
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.write(f"{host} {port}{' stays' if stays else ''}\n")
            each.stdin.flush()

    def _have_lived(self) -> bool:
        processes = range(len(self._processes))
        return all(self._board.of(each)[LIVES] == self._lives for each in processes)

    def finish(self) -> None:
        """Publish no more, and be done when all that is confirmed was delivered."""
        self._board.numbers[IS_ENOUGH] = 1

    def end(self) -> None:
        """End all processes; harmless when repeated."""
        self._board.numbers[IS_OVER] = 1
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.close()
        for each in self._processes:
            try:
                each.wait(END_S)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()

    @property
    def error(self) -> str:
        """Why a process has ended early or in disorder; empty if none has."""
        ends = [each.poll() for each in self._processes]
        is_over = self._board.numbers[IS_OVER]
        logs = zip(self._logs, ends, strict=True)
        return "\n".join(
            f"{log.name} ended with {end}:\n{log.read_text()}"
            for log, end in logs
            if end or (end == 0 and not is_over)
        )

    @property
    def confirmed(self) -> int:
        return self._board.total(COUNT, PUBLISHER_NOS)

    @property
    def delivered(self) -> int:
        return self._board.total(COUNT, CONSUMER_NOS)

    @property
    def cpu_us(self) -> float:
        """The processor time of all clients for one message that was delivered."""
        spent_ns = self._board.total(CPU_NS, range(len(self._processes)))
        return spent_ns / 1000 / max(1, self.delivered)

    @property
    def is_done(self) -> bool:
        is_settled = not self._board.total(OUTSTANDING, PUBLISHER_NOS)
        return bool(self._board.numbers[IS_ENOUGH]) and is_settled and not self.lost()

    def lost(self) -> int:
        """Return how many messages were confirmed and never delivered."""
        board, lost = self._board, 0
        for publisher in PUBLISHER_NOS:
            messages = board.messages_of(publisher)
            for first in range(messages.start, messages.stop, _PIECE_BYTES):
                piece = slice(first, min(first + _PIECE_BYTES, messages.stop))
                # The lowest bits: CONFIRMED of the one, SEEN of the other.
                confirmed = int.from_bytes(board.confirmed[piece])
                lost += (confirmed & ~int.from_bytes(board.seen[piece])).bit_count()
        return lost

    def check(self) -> None:
        """See that nobody was told of a message twice as new, and of none that was never published."""
        board, known = self._board, 0
        for publisher in PUBLISHER_NOS:
            messages = board.messages_of(publisher)
            known += _known(board.seen[messages])
            rest = board.seen[messages.stop : (publisher + 1) * board.capacity]
            assert not _known(rest), "delivered and never published"
        assert known == self.delivered, "delivered as new to two consumers"


def _known(seen: memoryview) -> int:
    pieces = range(0, len(seen), _PIECE_BYTES)
    return len(seen) - sum(bytes(seen[at : at + _PIECE_BYTES]).count(0) for at in pieces)


def _started(log: Path, *arguments: str) -> subprocess.Popen[str]:
    with log.open("w") as output:
        return subprocess.Popen(
            [sys.executable, "-P", str(PROCESS), *arguments],
            cwd=log.parent,
            env=clean_environment(PYTHONPATH=str(TESTS)),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            text=True,
        )
