"""Random schedules: whatever happens to nodes and connections, mail comes without a gap, or ends with one down.

Tests: testing/links.py
"""

from __future__ import annotations

from random import Random

import pytest

from leveret.actors.links.limits import LinkLimits
from leveret.actors.runtime.ref import Ref
from rigs.links.linked_nodes import LinkedNodes
from rigs.wire.talker import Talker

SCHEDULES = 150
STEPS = 60
SIZES = (1, 100, 5_000, 70_000, 600_000)


class Schedule:
    """A cluster of three nodes and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        limits = LinkLimits(
            chunk_bytes=random.choice((10_000, 100_000)),
            credit_messages=random.choice((5, 10_000)),
            unsent_bytes_max=random.choice((2_000_000, 256_000_000)),
            mail_bytes_max=1_000_000,
        )
        self.nodes = LinkedNodes(
            seed, "abc", limits, bytes_per_s=random.choice((1e6, 1e9)),
            delay_s=random.choice((0.0, 0.005, 0.2)),
        )  # fmt: skip
        self.talkers: dict[str, list[Ref]] = {name: [] for name in "abc"}
        self.all: list[tuple[Ref, Talker]] = []  # also the dead
        self.ended: dict[tuple[str, int], tuple[object, Talker]] = {}
        for name in "abc":
            for _ in range(3):
                self.spawn(name)

    def spawn(self, name: str) -> None:
        ref = self.nodes.runtimes[name].spawn(Talker)
        self.talkers[name].append(ref)
        self.all.append((ref, ref.cell.actor))

    def step(self) -> None:
        random, nodes = self.random, self.nodes
        one, other = random.sample("abc", 2)
        what = random.random()
        if what < 0.75:
            sender, receiver = (random.choice(self.talkers[name]) for name in (one, other))
            for _ in range(random.choice((1, 3, 50))):
                size = random.choice(SIZES if random.random() < 0.2 else SIZES[:2])
                to = nodes.ref(one, receiver)
                nodes.runtimes[one].send(sender, lambda self, to=to, size=size: self.talk(to, size))
        elif what < 0.80:
            nodes.network.reset(one, other)
        elif what < 0.84:
            nodes.network.silence(one, other, is_one_way=random.random() < 0.5)
        elif what < 0.88:
            nodes.network.heal()
        elif what < 0.92:
            self.end(one, random.choice(self.talkers[one]))
        elif what < 0.96:
            nodes.runtimes[one].suspend(random.choice(self.talkers[one]))
        else:
            for ref in self.talkers[one]:
                nodes.runtimes[one].resume(ref)
        if random.random() < 0.01:
            self.crash(one)
        nodes.run(random.choice((0.0, 0.001, 0.02, 0.3)))

    def end(self, name: str, ref: Ref) -> None:
        """End an actor with a reason; what it has sent by then is known."""
        self.talkers[name].remove(ref)
        self.nodes.runtimes[name].resume(ref)
        self.nodes.runtimes[name].send(ref, lambda self: self.stop("ended"))
        self.spawn(name)

    def crash(self, name: str) -> None:
        nodes = self.nodes
        nodes.network.crash(name)
        for cell in nodes.runtimes[name].cells():
            nodes.runtimes[name].exit(cell.ref, "kill")
        nodes.runtimes[name].run_until_idle()
        self.talkers[name].clear()
        nodes.start(name)
        for _ in range(3):
            self.spawn(name)

    def rest(self) -> None:
        self.nodes.network.heal()
        self.nodes.network.bytes_per_s = 1e9
        for name in "abc":
            for ref in self.talkers[name]:
                self.nodes.runtimes[name].resume(ref)
        self.nodes.run(30.0)  # the longest pause before a node is dialled again is 5 s


def judge(schedule: Schedule) -> int:
    """Check what every actor has noted; return how many messages that were."""
    count = 0
    for ref, talker in schedule.all:
        if not ref.is_alive:
            continue  # its notes went with it
        for sender, numbers in talker.judged():
            count += len(numbers)
            if sender.is_alive:
                assert len(numbers) == _sent(schedule, sender, ref), "mail is missing"
    return count


def _sent(schedule: Schedule, sender: Ref, to: Ref) -> int:
    """Return how many messages the sender, as its receiver knows it, has sent to the present address."""
    node = sender.node.partition("/")[0]
    home = schedule.nodes.runtimes[node].by_number(sender.num)
    assert home is not None
    talker: Talker = home.cell.actor
    return talker.sent[schedule.nodes.ref(node, to)]


def play(seeds: range) -> int:
    """Play schedules; return how many messages came in them."""
    count = 0
    for number in seeds:
        schedule = Schedule(number)
        try:
            for _ in range(STEPS):
                schedule.step()
            schedule.rest()
            count += judge(schedule)
        except BaseException as error:
            error.add_note(f"schedule of seed {number}")
            raise
    return count


def test_mail_comes_without_a_gap_or_ends_with_one_down(seed: int) -> None:
    assert play(range(seed, seed + SCHEDULES)) > 20 * SCHEDULES


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_schedules(seed: int, block: int) -> None:
    assert play(range(seed + 1_000 * block, seed + 1_000 * (block + 1))) > 20_000
