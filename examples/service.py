"""An asyncio service under supervision, without a broker: a price server and its feed.

``feed`` fetches prices and sometimes fails (here deliberately, every few prices). Its supervisor restarts it after a
growing delay; the server is not affected. Ctrl-C or SIGTERM stops everything in order.

    pip install leveret
    python examples/service.py                          # Ctrl-C stops it
    echo tea | nc 127.0.0.1 PORT                        # the port it has printed
"""

from __future__ import annotations

import asyncio
import itertools
import logging

from leveret.supervisors import Backoff, Metrics, RunningTree, Tree, ready, run

PRICES: dict[str, int] = {}
metrics = Metrics()
shop = Tree("shop", intensity=100, on_report=metrics.on_report, on_restart=metrics.on_restart)


@shop.service(backoff=Backoff(first_s=0.05, max_s=2.0))
async def feed() -> None:
    for number in itertools.count(1):
        PRICES["tea"] = PRICES.get("tea", 0) + 1
        if number == 3:
            raise ConnectionError("the wholesaler has hung up")
        await asyncio.sleep(0.02)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        article = line.decode().strip()
        restarts = metrics.restarts["shop > feed"]
        writer.write(f"{article}: {PRICES.get(article)} after {restarts} restarts\n".encode())
        await writer.drain()
    writer.close()


@shop.service(waits_for_ready=True, start_timeout_s=10.0)
async def server() -> None:
    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listener:
        print(f"prices: 127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
        ready()  # children started later can rely on the port
        await listener.serve_forever()


def show(running: RunningTree) -> None:
    print(running.render(), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # the failures are deliberate here
    run(shop, on_started=show)
    print("stopped")
