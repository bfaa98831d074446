"""A replicated log on three nodes, each a process of its own; one is killed, and comes back.

pip install leveret
python examples/replicated_log_nodes.py

The nodes are linked by Unix sockets here; ``HOST:PORT`` works as well, also between machines (with TLS, docs/links.md).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit
from leveret.gm import Callbacks, Group, MemberId, RingNode
from leveret.gm.node_links import node_links
from leveret.gm.store_server import GroupStoreServer, LinkedGroupStore

NAMES = ("ann", "bob", "cem")


class Log(Callbacks):
    """The entries of one member, and who the members are."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.members: frozenset[MemberId] = frozenset()

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> None:
        self.members = members

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> None:
        self.members = (self.members | births) - deaths

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        self.entries.append(message)


class Clerk(GenServer):
    """Tells the first process what the log has, and is told when to write."""

    def init(self, log: Log, writes: asyncio.Event) -> None:
        self.log, self.writes = log, writes

    def handle_call(self, request: Any, frm: From | None) -> Any:
        if request == "write":
            self.writes.set()
        elif request == "stop":
            self.writes.clear()
        return [len(self.log.members), self.log.entries]


async def member(name: str, folder: str, secret: bytes) -> None:
    """Be one of the three nodes."""
    runtime = Runtime(name=name)
    node = Node(runtime, Security(secret))
    await node.listen(f"unix:{folder}/{name}")
    others = [other for other in ("home", *NAMES) if other != name]
    for other in others:
        node.dial(f"unix:{folder}/{other}")
    for other in others:  # a newcomer that cannot reach the members is refused
        await node.connected(other, 30)
    log, writes = Log(), asyncio.Event()
    ring_node = RingNode(runtime, LinkedGroupStore(node, "records", "home"), node_links(node))
    group = await Group.join("log", log, ring_node)
    runtime.spawn(Clerk, log, writes, name="clerk")
    for number in itertools.count(1):  # until the first process ends this one
        await writes.wait()
        await group.confirmed_broadcast(f"{name} {os.getpid()}: {number}".encode())
        await asyncio.sleep(0.01)


def start(name: str, folder: str, secret: bytes) -> subprocess.Popen[bytes]:
    program = [sys.executable, os.path.abspath(__file__), name, folder]
    return subprocess.Popen(program, env=os.environ | {"LOG_SECRET": secret.hex()})


async def ask(runtime: Runtime, node: Node, name: str, request: str) -> list[Any]:
    """Ask a member's clerk; an empty answer if it is not there yet."""
    try:
        clerk = await node.whereis("clerk", name)
        if clerk is not None:
            answer: list[Any] = await runtime.call(clerk, request)
            return answer
    except CallExit as error:
        if error.reason != "noconnection":
            raise
    return [0, []]


async def until(
    runtime: Runtime, node: Node, names: tuple[str, ...], holds: Callable[[int, int], bool]
) -> None:
    """Wait until something holds for members and entries of each of the nodes."""
    for name in names:
        async with asyncio.timeout(60):
            while True:
                members, entries = await ask(runtime, node, name, "look")
                if holds(members, len(entries)):
                    break
                await asyncio.sleep(0.02)


async def tell(runtime: Runtime, node: Node, request: str) -> None:
    for name in NAMES:
        await ask(runtime, node, name, request)


async def main() -> None:
    secret = secrets.token_bytes(32)
    runtime = Runtime(name="home")
    node = Node(runtime, Security(secret))
    runtime.spawn(GroupStoreServer, name="records")
    with tempfile.TemporaryDirectory() as folder:
        await node.listen(f"unix:{folder}/home")
        processes = {name: start(name, folder, secret) for name in NAMES}
        try:
            await until(runtime, node, NAMES, lambda members, _: members == 3)
            await tell(runtime, node, "write")
            await until(runtime, node, NAMES, lambda _, entries: entries > 9)
            print("three nodes, and each has entries")
            os.kill(processes["bob"].pid, signal.SIGKILL)
            processes["bob"].wait()
            before = len((await ask(runtime, node, "ann", "look"))[1])
            await until(runtime, node, ("ann", "cem"), lambda members, _: members == 2)
            await until(runtime, node, ("ann", "cem"), lambda _, entries: entries > before + 9)
            print("bob is killed, and the others go on")
            processes["bob"] = start("bob", folder, secret)
            await until(runtime, node, NAMES, lambda members, _: members == 3)
            await tell(runtime, node, "write")
            await until(runtime, node, NAMES, lambda _, entries: entries > 9)
            print("bob is back")
            await tell(runtime, node, "stop")
            await asyncio.sleep(1)  # what is under way goes round
            logs = {name: sorted((await ask(runtime, node, name, "look"))[1]) for name in NAMES}
            assert logs["ann"] == logs["cem"]
            assert set(logs["bob"]) <= set(logs["ann"])
            print("ann and cem have the same entries, and bob those since he is back")
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
            await node.close()
            await runtime.shutdown()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(member(*sys.argv[1:], secret=bytes.fromhex(os.environ["LOG_SECRET"])))
    else:
        asyncio.run(main())
