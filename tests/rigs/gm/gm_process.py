"""A node with members of groups in a process of its own: ``gm_process.py SETTINGS``; lines of JSON say what it does.

A command is ``[number, name, arguments]``; its answer ``[number, value, ""]``, or ``[number, null, error]``. Commands
run at the same time. Each member's history goes to a file of its own. *Traps* kill a process at a chosen frame or
delivery.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.etcd.settings import EtcdSettings
from leveret.gm import Callbacks, GmError, GroupEndedError, MemberId, RingNode
from leveret.gm.links import Links
from leveret.gm.node_links import node_links
from leveret.gm.records.etcd_store import EtcdGroupStore
from leveret.gm.ring.frames import Activity, CatchUp, Frame
from leveret.gm.ring.member import NOCONNECTION
from rigs.gm.recording import SUFFIX, RecordedGroup, Recorder

LONG_S = 60.0
PAUSE_S = 0.05  # before a member that reached nobody tries again
OWN = "own delivery"


@dataclass
class Trap:
    """Kills a process when something happens for the ``number``-th time, before its effect.

    Attributes:
        event: name of a frame's class that is sent, or ``OWN``: a member here delivers its own message.
        number: counts down.
        of: a node whose news the frame must have; empty: any.
        to: the node that it is sent to; empty: any.
        pid: of the process to kill; 0: this one.
        token: a path; the first process that makes the file kills, others do not.
    """

    event: str
    number: int = 1
    of: str = ""
    to: str = ""
    pid: int = 0
    token: str = ""

    def fires(self, event: str, to: str = "", frame: Frame | None = None) -> bool:
        """Count; return whether the moment has come."""
        if event != self.event or (self.to and to.partition("/")[0] != self.to):
            return False
        if self.of and not (
            isinstance(frame, Activity | CatchUp)
            and any(entry.publisher.node.partition("/")[0] == self.of for entry in frame.entries)
        ):
            return False
        self.number -= 1
        return self.number == 0

    def kill(self) -> None:
        if self.token:
            try:
                os.close(os.open(self.token, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                return
        os.kill(self.pid or os.getpid(), signal.SIGKILL)


class Traps:
    """A list of traps, of which the first is armed; and the links of the node, which it watches."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.left: list[Trap] = []

    def look(self, event: str, to: str = "", frame: Frame | None = None) -> None:
        if self.left and self.left[0].fires(event, to, frame):
            self.left.pop(0).kill()

    # Links.

    def open(self, actor: Ref) -> MemberId:
        return self._links.open(actor)

    def send(self, sender: MemberId, to: MemberId, frame: Frame) -> None:
        self.look(type(frame).__name__, to.node, frame)
        self._links.send(sender, to, frame)

    def monitor(self, watcher: MemberId, peer: MemberId) -> None:
        self._links.monitor(watcher, peer)

    def demonitor(self, watcher: MemberId, peer: MemberId) -> None:
        self._links.demonitor(watcher, peer)


class Trapped(Callbacks):
    """Callbacks that look at the traps when a member delivers its own message."""

    def __init__(self, traps: Traps) -> None:
        self._traps = traps
        self._me: MemberId | None = None

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> None:
        self._me = me

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        if publisher == self._me:
            self._traps.look(OWN)


class Members:
    """The members of this process; its public methods are the commands."""

    def __init__(self, node: Node, store: EtcdGroupStore, folder: Path) -> None:
        self._node = node
        self._folder = folder
        self._numbers = itertools.count(1)
        self._traps = Traps(node_links(node))
        self._ring_node = RingNode(node.runtime, store, self._traps)
        self._members: dict[str, list[RecordedGroup]] = {}
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    async def peers(self, addresses: dict[str, str]) -> None:
        """Keep linked with nodes, and wait for the links."""
        for address in addresses.values():
            self._node.dial(address)
        for name in addresses:
            await self._node.connected(name, LONG_S)

    async def links(self) -> list[str]:
        return sorted(self._node.nodes)

    async def join(self, group: str, timeout_s: float = LONG_S) -> str:
        folder = self._folder / group
        folder.mkdir(exist_ok=True)
        file = f"{self._node.name}-{os.getpid()}-{next(self._numbers)}{SUFFIX}"
        member = await RecordedGroup.join(
            group, Trapped(self._traps), self._ring_node, Recorder(folder / file), timeout_s
        )
        mine = self._members.setdefault(group, [])
        mine.append(member)
        self._node.runtime.watch(member.group.actor, lambda _: mine.remove(member))
        return str(member.me)

    async def stay(self, group: str) -> None:
        """Join, and again whenever the member has ended."""

        async def stay() -> None:
            while True:
                try:
                    me = await self.join(group, LONG_S)
                except GroupEndedError as error:
                    if error.reason != NOCONNECTION:
                        raise
                    await asyncio.sleep(PAUSE_S)
                    continue
                for member in self._members[group]:
                    if str(member.me) == me:
                        await self._node.runtime.join(member.group.actor)

        self._work("stay " + group, stay())

    async def stay_no_more(self, group: str) -> None:
        await self._end("stay " + group)

    async def load(self, group: str, pause_s: float, seed: int) -> None:
        """Publish by all members, now and then confirmed, until ``quiet``."""
        random = Random(seed)

        async def load() -> None:
            while True:
                for member in list(self._members.get(group, ())):
                    with suppress(GmError):  # it ends, or is about to
                        message = self._message(member, random.choice((0, 0, 0, 1_000, 50_000)))
                        if random.random() < 0.2:
                            task = asyncio.create_task(_confirmed(member, message))
                            self._tasks.setdefault("load " + group, []).append(task)
                        else:
                            await member.broadcast(message)
                await asyncio.sleep(random.random() * pause_s)

        self._work("load " + group, load())

    async def quiet(self, group: str) -> None:
        """Publish no more; confirms that were waited for are waited for no more."""
        await self._end("load " + group)

    async def publish(self, group: str, at: int = 0) -> str:
        """Publish a message by one of the members, and return its text."""
        member = self._members[group][at]
        message = self._message(member, 0)
        await member.broadcast(message)
        return message.decode()

    async def confirm(self, group: str) -> int:
        """Have each member publish a message; return how many were confirmed: a member may end meanwhile."""
        members = list(self._members.get(group, ()))
        done = [_confirmed(member, self._message(member, 0)) for member in members]
        return sum(await asyncio.gather(*done))

    async def status(self, group: str) -> dict[str, Any]:
        """Return what each member knows, by its name."""
        found = {}
        for member in list(self._members.get(group, ())):
            with suppress(GroupEndedError):
                status = await member.group.status()
                found[str(member.me)] = {
                    "stamp": [status.epoch, status.version],
                    "members": status.members,
                    "pending": status.pending,
                    "trouble": status.store_trouble,
                }
        return found

    async def rest(self, group: str) -> None:
        for member in list(self._members.get(group, ())):
            await member.rest()

    async def leave(self, group: str, at: int = 0) -> None:
        await self._members[group][at].group.leave()

    async def end(self, group: str, at: int = 0) -> str:
        """Kill a member's actor, and wait until it has ended."""
        member = self._members[group][at]
        self._node.runtime.exit(member.group.actor, "kill")
        await self._node.runtime.join(member.group.actor)
        return str(member.me)

    async def drop(self, group: str) -> None:
        """Kill all members."""
        for member in list(self._members.pop(group, ())):
            self._node.runtime.exit(member.group.actor, "kill")

    async def trap(self, *traps: dict[str, Any]) -> None:
        """Set traps, of which each is armed when the one before has fired."""
        self._traps.left = [Trap(**each) for each in traps]

    def _message(self, member: RecordedGroup, size: int) -> bytes:
        return b"%s:%d" % (str(member.me).encode(), next(self._numbers)) + b"." * size

    def _work(self, name: str, work: Any) -> None:
        self._tasks.setdefault(name, []).append(asyncio.create_task(work))

    async def _end(self, name: str) -> None:
        tasks = self._tasks.pop(name, [])
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _confirmed(member: RecordedGroup, message: bytes) -> bool:
    try:
        await member.confirmed_broadcast(message, LONG_S)
    except GroupEndedError as error:
        if error.reason == "timeout":
            raise
        return False
    return True


def say(*line: Any) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


async def carry_out(members: Members, number: int, name: str, arguments: list[Any]) -> None:
    try:
        say(number, await getattr(members, name)(*arguments), "")
    except Exception as error:  # noqa: BLE001 - the test is told, and decides
        say(number, None, f"{type(error).__name__}: {error}")


async def main(settings: dict[str, Any]) -> None:
    runtime = Runtime(name=settings["name"])
    suspect_s = settings["suspect_s"]
    limits = LinkLimits(heartbeat_s=suspect_s / 4, suspect_s=suspect_s, redial_max_s=0.5)
    node = Node(runtime, Security(settings["secret"].encode()), limits)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    etcd = EtcdSettings(
        (settings["etcd"],),
        timeout_s=settings["etcd_s"],
        connect_timeout_s=settings["etcd_s"],
    )
    async with EtcdClient(etcd) as client:
        store = EtcdGroupStore(Background(client), settings["prefix"])
        members = Members(node, store, Path(settings["folder"]))
        say("ready", await node.listen("127.0.0.1:0"), runtime.node)
        tasks = set()
        while line := await reader.readline():
            task = asyncio.create_task(carry_out(members, *json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await node.close()
        await runtime.shutdown(5.0)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
