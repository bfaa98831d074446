"""A publisher or a consumer of a flood, in a process of its own.

    python -P flood_process.py BOARD CAPACITY PROCESS RATE

It takes lines ``HOST PORT``, one for each life of the broker, and works with that until its connection ends;
with a line ``HOST PORT stays`` it connects again whenever that happens, until all is over. It writes its counts
to the board; a violation ends it with an error.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from soak.board import IS_OVER, LIVES, PUBLISHER_NOS, PUBLISHERS, Board
from soak.flood_client import Client
from soak.flood_consumer import Consumer
from soak.flood_publisher import Publisher

RECONNECT_S = 0.2  # as clients wait before they connect again


def main(path: str, capacity: str, process: str, rate: str) -> None:
    board, number = Board(Path(path), int(capacity)), int(process)
    client: Client
    if number in PUBLISHER_NOS:
        client = Publisher(board, number, float(rate) / PUBLISHERS)
    else:
        client = Consumer(board, number)
    for line in sys.stdin:
        host, port, *stays = line.split()
        client.broker_stays = bool(stays)
        client.live((host, int(port)))
        while client.broker_stays and not board.numbers[IS_OVER]:
            time.sleep(RECONNECT_S)
            client.live((host, int(port)))
        client.own[LIVES] += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
