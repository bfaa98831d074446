"""What a message costs in a ring: the state machines alone, and as actors of one process.

python benchmarks/micro/gm.py
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from random import Random

from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Callbacks, Group, RingNode
from leveret.gm.records.group import MemberId
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.records.transactor import Transactor
from leveret.gm.requests import Broadcast
from leveret.gm.ring import effects
from leveret.gm.ring.limits import Limits
from leveret.gm.ring.member import Member
from leveret.testing.virtual_clock import VirtualClock

MESSAGES = 100_000
BATCHES = (1, 10, 100)
MEMBERS = (2, 3, 5)


class Machines:
    """Members whose effects are carried out at once, in turn."""

    def __init__(self, count: int) -> None:
        self.members: dict[MemberId, Member] = {}
        self._transactor = Transactor(MemoryGroupStore(), "g", VirtualClock())
        for number in range(count):
            me = MemberId("n", number)
            self.members[me] = Member(me, Random(1), Limits(pending_bytes=1 << 30))
            self.members[me].start()
            self.run()

    def run(self) -> None:
        busy = deque(self.members)  # in the order of their work
        while busy:
            me = busy.popleft()
            member = self.members[me]
            for effect in member.take_effects():
                if isinstance(effect, effects.Send):
                    self.members[effect.to].receive(me, effect.frame)
                    busy.append(effect.to)
                elif isinstance(effect, effects.Transact):
                    self._transactor.run(effect.transaction, member.answered)
                    busy.append(me)
            if member.has_unsent and me not in busy:
                member.idle()
                busy.append(me)


def machines(count: int, batch: int) -> float:
    """Return the seconds of processor time per message and member."""
    ring = Machines(count)
    publisher = next(iter(ring.members.values()))
    bodies = [b"x" * 100] * batch
    begun_s = time.process_time()
    for _ in range(MESSAGES // batch):
        publisher.broadcast(bodies)
        ring.run()
    assert publisher.pending == {}
    return (time.process_time() - begun_s) / MESSAGES / count


async def actors(count: int, batch: int) -> float:
    """Return the seconds of processor time per message and member."""
    runtime = Runtime()
    node = RingNode(runtime, limits=Limits(pending_bytes=1 << 30))
    groups = [await Group.join("g", Callbacks(), node) for _ in range(count)]
    bodies = [b"x" * 100] * batch
    begun_s = time.process_time()
    for _ in range(MESSAGES // batch):
        runtime.send(groups[0].actor, Broadcast(bodies))
        await asyncio.sleep(0)
    await groups[0].confirmed_broadcast(b"last")
    spent_s = time.process_time() - begun_s
    await runtime.shutdown()
    return spent_s / MESSAGES / count


def main() -> None:
    print("members  batch  machines     actors      (us per message and member)")
    for count in MEMBERS:
        for batch in BATCHES:
            alone, acting = machines(count, batch), asyncio.run(actors(count, batch))
            print(f"{count:7}  {batch:5}  {alone * 1e6:8.2f}   {acting * 1e6:8.2f}")


main()
