"""A replicated log: three members of a group keep the same entries of each author, and one of them is killed.

pip install leveret
python examples/replicated_log.py
"""

from __future__ import annotations

import asyncio

from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Callbacks, Group, MemberId, RingNode


class Log(Callbacks):
    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        self.entries.append(message)


async def main() -> None:
    runtime = Runtime()
    node = RingNode(runtime)
    logs = [Log() for _ in range(3)]
    ann, bob, cem = [await Group.join("log", log, node) for log in logs]

    await ann.broadcast(b"ann: 1", b"ann: 2")
    await bob.confirmed_broadcast(b"bob: 1")  # every log has it now
    runtime.exit(bob.actor, "kill")
    await ann.confirmed_broadcast(b"ann: 3")

    print("ann has", logs[0].entries)
    print("cem has", logs[2].entries)
    assert sorted(logs[0].entries) == sorted(logs[2].entries)
    await cem.leave()
    await ann.leave()
    await runtime.shutdown()


asyncio.run(main())
