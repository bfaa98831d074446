"""Members that join and die in a group's record as fast as they can, without a ring: work for a store of records.

As a program: ``python record_worker.py URL PREFIX NAME WORKERS ROUNDS SEED``; prints ``done`` at the end.
"""

from __future__ import annotations

import asyncio
import sys
from random import Random

from leveret.core.clock import SystemClock
from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.etcd.settings import EtcdSettings
from leveret.gm.records.etcd_store import EtcdGroupStore
from leveret.gm.records.group import Group, LostMembershipError, MemberId
from leveret.gm.records.store import GroupStore
from leveret.gm.records.transactions import Add, Create, Erase, MarkDead, Transaction
from leveret.gm.records.transactor import Transactor


class Worker:
    """One transactor whose members come and go."""

    def __init__(self, store: GroupStore, group: str, node: str, random: Random) -> None:
        clock = SystemClock(asyncio.get_running_loop())
        self._transactor = Transactor(store, group, clock)
        self._node = node
        self._random = random
        self._count = 0

    async def run(self, transaction: Transaction) -> Group | None:
        done: asyncio.Future[Group | LostMembershipError | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._transactor.run(transaction, done.set_result)
        result = await done
        if isinstance(result, LostMembershipError):
            raise result
        return result

    async def round(self) -> None:
        """Join, by whom ever takes it, erase the dead, and die."""
        self._count += 1
        me = MemberId(self._node, self._count)
        group = await self.run(Create(me))
        while group is None or not group.is_alive(me):
            alive = group.alive() if group is not None else ()
            try:
                if alive:
                    group = await self.run(Add(me, self._random.choice(alive)))
                else:
                    group = await self.run(Create(me))
            except LostMembershipError:
                group = await self.run(Create(me))
        dead = frozenset(each.member for each in group.entries if not each.is_alive)
        if dead:
            await self.run(Erase(dead, me))
        await self.run(MarkDead(me, by=None))


async def work(
    store: GroupStore, group: str, node: str, workers: int, rounds: int, seed: int
) -> None:
    """Run some workers at once."""

    async def one(number: int) -> None:
        worker = Worker(store, group, f"{node}-{number}", Random(f"{seed} {number}"))
        for _ in range(rounds):
            await worker.round()

    await asyncio.gather(*(one(number) for number in range(workers)))


async def main(
    url: str, prefix: str, group: str, node: str, workers: int, rounds: int, seed: int
) -> None:
    async with EtcdClient(EtcdSettings((url,), timeout_s=20.0, connect_timeout_s=20.0)) as client:
        store = EtcdGroupStore(Background(client), prefix)
        await work(store, group, node, workers, rounds, seed)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], *map(int, sys.argv[5:])))
