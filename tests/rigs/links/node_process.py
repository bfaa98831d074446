"""A node in a process of its own, for tests that kill or stop it: ``node_process.py NAME ADDRESS SECRET``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime


class Counter(GenServer):
    """Counts bytes, answers, and floods who asks for it."""

    def init(self) -> None:
        self.count = 0

    def handle_cast(self, message: Any) -> None:
        if isinstance(message, Ref):
            for number in range(1_000):
                self.post(message, number)
            if message.is_alive:
                self.runtime.again(self.ref, message)
        else:
            self.count += len(message)

    def handle_call(self, request: Any, frm: From | None) -> Any:
        return self.count if request == "count" else request


async def main() -> None:
    name, address, secret = sys.argv[1:]
    runtime = Runtime(name=name)
    node = Node(runtime, Security(secret.encode()))
    runtime.spawn(Counter, name="counter")
    node.dial(address)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
