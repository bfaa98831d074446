"""Random schedules of processes that talk through their parents: mail comes without a gap, or ends with one down."""

from __future__ import annotations

from random import Random

import pytest

from leveret.actors.links.limits import LinkLimits
from leveret.actors.processes import link
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from rigs.links.linked_processes import LinkedProcess, LinkedProcesses
from rigs.wire.talker import Talker

SCHEDULES = 50
STEPS = 60
SIZES = (1, 100, 5_000, 70_000, 600_000)
BELOW = {
    "a": "",
    "b": "",
    "c": "b",
}  # the place that a process is started by; "" is the parent of all


class Schedule:
    """A parent with processes ``a`` and ``b``, of which ``b`` has a process ``c``, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.tree = LinkedProcesses(
            seed, bytes_per_s=random.choice((1e6, 1e9)), delay_s=random.choice((0.0, 0.005, 0.2))
        )
        self.runtimes: dict[str, Runtime] = {"": self.tree.runtime}
        self.processes: dict[str, LinkedProcess] = {}
        self.talkers: dict[str, list[Ref]] = {"": []}
        self.actors: list[tuple[Ref, Talker, str]] = []  # also the dead
        self.roots: dict[Ref, Ref] = {}  # by host
        self.hosts: dict[Ref, Ref] = {}  # by root
        for place in ("", "a", "b", "c"):
            self.begin(place)

    def begin(self, place: str) -> None:
        if place:
            under = self.runtimes[BELOW[place]]
            process = self.processes[place] = self.tree.start(under, root_class=Talker)
            self.runtimes[place] = process.runtime
            self.talkers[place] = [process.root]
            self.hosts[process.root] = process.host
            self.roots[process.host] = process.root
            self.actors.append((process.root, process.noting, place))
        for _ in range(2):
            self.spawn(place)

    def spawn(self, place: str) -> None:
        ref = self.runtimes[place].spawn(Talker)
        self.talkers[place].append(ref)
        self.actors.append((ref, ref.cell.actor, place))

    def address(self, at: str, actor: Ref) -> Ref:
        """Return the address that an actor has at a place: a root has its host's elsewhere."""
        runtime = self.runtimes[at]
        if actor.node != runtime.node:
            actor = self.hosts.get(actor, actor)
        return runtime.routes.ref(actor.node, actor.num)

    def step(self) -> None:
        random = self.random
        one, other = random.choice([*self.runtimes]), random.choice([*self.runtimes])
        sender, receiver = random.choice(self.talkers[one]), random.choice(self.talkers[other])
        what = random.random()
        if what < 0.8:
            for _ in range(random.choice((1, 3, 50))):
                size = random.choice(SIZES if random.random() < 0.2 else SIZES[:2])
                to = self.address(one, receiver)
                self.runtimes[one].send(sender, lambda self, to=to, size=size: self.talk(to, size))
        elif what < 0.86:
            self.runtimes[one].suspend(sender)
        elif what < 0.92:
            for ref in self.talkers[one]:
                self.runtimes[one].resume(ref)
        elif what < 0.97:
            self.end(one, sender)
        elif one:
            self.kill(one)
        self.tree.run(random.choice((0.0, 0.001, 0.02, 0.3)))

    def end(self, place: str, ref: Ref) -> None:
        """End an actor, but no root, which is the end of its process."""
        if ref not in self.hosts:
            self.talkers[place].remove(ref)
            self.runtimes[place].resume(ref)
            self.runtimes[place].send(ref, lambda self: self.stop("ended"))
            self.spawn(place)

    def kill(self, place: str) -> None:
        """Kill a process and those below it, and start others."""
        places = [place, *(below for below, above in BELOW.items() if above == place)]
        for each in reversed(places):
            process = self.processes[each]
            for cell in process.runtime.cells():
                process.runtime.exit(cell.ref, "kill")
            process.runtime.run_until_idle()
            process.link.peer.cut("killed")
            self.tree.run(0.3)
            process.host_link.peer.cut("killed")
            self.runtimes[BELOW[each]].exit(process.host, "kill")
        self.tree.run(0.3)
        for each in places:
            self.begin(each)

    def rest(self) -> None:
        self.tree.network.bytes_per_s = 1e9
        for place, refs in self.talkers.items():
            for ref in refs:
                self.runtimes[place].resume(ref)
        self.tree.run(60.0)

    def judge(self) -> int:
        """Check what every actor has noted; return how many messages that were."""
        count = 0
        for ref, talker, _ in self.actors:
            if not ref.is_alive:
                continue  # its notes went with it
            for sender, numbers in talker.judged():
                count += len(numbers)
                if sender.is_alive:
                    assert len(numbers) == self._sent(sender, ref), "mail is missing"
        return count

    def _sent(self, sender: Ref, to: Ref) -> int:
        """Return how many messages the sender, as its receiver knows it, has sent to an actor."""
        root = self.roots.get(sender) or next(
            (root for host, root in self.roots.items() if _are_same(host, sender)), None
        )
        for ref, talker, place in self.actors:
            if ref.is_alive and (ref is root or _are_same(ref, sender)):
                return talker.sent[self.address(place, to)]
        raise AssertionError(f"{sender!r} is alive and not known")


def _are_same(one: Ref, other: Ref) -> bool:
    return (one.node, one.num) == (other.node, other.num)


def _play(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    random = Random(seed)
    limits = LinkLimits(
        chunk_bytes=random.choice((10_000, 100_000)), credit_messages=random.choice((5, 10_000))
    )
    monkeypatch.setattr(link, "LIMITS", limits)
    try:
        schedule = Schedule(seed)
        for _ in range(STEPS):
            schedule.step()
        schedule.rest()
        return schedule.judge()
    except BaseException as error:
        error.add_note(f"schedule of seed {seed}")
        raise


def test_mail_comes_without_a_gap_or_ends_with_one_down(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(_play(seed + number, monkeypatch) for number in range(SCHEDULES)) > 20 * SCHEDULES


@pytest.mark.slow
def test_many_schedules(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10_000):
        _play(seed + number, monkeypatch)
