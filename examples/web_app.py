"""An aiohttp application under supervision, with a background job that may fail and a program.

    pip install leveret aiohttp
    python examples/web_app.py                          # Ctrl-C stops it
    curl http://127.0.0.1:PORT/                         # the port it has printed
    curl -X POST http://127.0.0.1:PORT/crash            # the counter fails, the web server stays

``one_for_one``: the job is restarted alone. The state of the counter belongs to the counter, an actor, and
starts again with it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web

from leveret.actors.gen_server import GenServer
from leveret.actors.service import current_service
from leveret.supervisors import Tree, ready, run

site = Tree("site", intensity=10, period_s=60.0)


class Visits(GenServer):
    """Counts visits; registered under a name, also after a restart."""

    def init(self) -> None:
        self.count = 0
        self.runtime.register("visits", self.ref)

    def handle_call(self, request: Any, frm: Any) -> int:
        self.count += 1
        return self.count

    def handle_cast(self, message: Any) -> None:
        raise RuntimeError(message)


async def show(request: web.Request) -> web.Response:
    runtime = request.app[RUNTIME]
    visits = runtime.whereis("visits")
    if visits is None:
        raise web.HTTPServiceUnavailable  # it is just being started again
    return web.Response(text=f"visit {await runtime.call(visits, 'next')}\n")


async def crash(request: web.Request) -> web.Response:
    runtime = request.app[RUNTIME]
    visits = runtime.whereis("visits")
    if visits is not None:
        runtime.send(visits, "somebody has asked for it")
    return web.Response(text="crashed\n")


RUNTIME: web.AppKey[Any] = web.AppKey("runtime", Any)
site.actor("visits", Visits)


@site.service(waits_for_ready=True, shutdown=10.0)
async def web_server() -> None:
    app = web.Application()
    app[RUNTIME] = current_service().runtime
    app.add_routes([web.get("/", show), web.post("/crash", crash)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        place = web.TCPSite(runner, "127.0.0.1", 0)
        await place.start()
        print(f"site: {runner.addresses[0][1]}", flush=True)
        ready()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()  # finishes requests in flight


site.command("clock", ["sleep", "1000000"])  # any program; it is restarted when it ends

if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # the failure is deliberate here
    run(site)
    print("stopped")
