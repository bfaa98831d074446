"""Random schedules: members join, publish, leave, crash and are cut off; then the ring comes to rest and is judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Final

from leveret.gm.records.group import Group, MemberId
from leveret.gm.ring.frames import Frame
from leveret.gm.ring.limits import Limits
from rigs.gm.ring import SimulatedMember, SimulatedRing

MEMBERS_MAX: Final = 6
JOIN_S: Final = 0.5  # in half of the schedules all have joined before the first fault
RUN_S: Final = 0.4  # of faults
REST_S: Final = 20.0  # at most, until nothing is under way


class Schedule:
    """One random schedule on one ring.

    Args:
        seed: of all choices.
        carry: what a frame becomes on its way.

    Attributes:
        ring: what it runs on.
    """

    def __init__(
        self, seed: int | str, carry: Callable[[Frame], Frame] = lambda frame: frame
    ) -> None:
        self._random = random = Random(f"schedule {seed}")
        limits = Limits(
            frame_bytes=random.choice((1, 200, 1 << 20)),
            pending_bytes=random.choice((300, 1 << 24)),
        )
        faults = random.choice((0.0, 0.0, 0.2))
        self.ring = SimulatedRing(
            seed, limits, faults, idleness=random.choice((0.3, 1.0)), carry=carry
        )
        self._nodes = [f"n{number}" for number in range(1, random.randint(2, MEMBERS_MAX) + 1)]
        self._messages = 0
        self._to_confirm: dict[MemberId, set[bytes]] = defaultdict(set)
        self._actions = self._mix()

    def run(self) -> list[str]:
        """Run it and return what is wrong."""
        clock, random = self.ring.clock, self._random
        for node in self._nodes[: random.randint(1, len(self._nodes))]:
            self.ring.start(node)
        clock.jump(random.choice((0.0, JOIN_S)))
        at_s = 0.0
        while at_s < RUN_S:
            pause_s = random.choice((0.0, 0.0, 0.001, 0.004, 0.02))
            at_s += pause_s + 0.001
            clock.jump(pause_s)
            random.choice(self._actions)()
        return self._rest()

    def _mix(self) -> list[Callable[[], None]]:
        """Return the actions of this schedule, some of them more often."""
        random = self._random
        actions: list[Callable[[], None]] = [self._publish] * random.choice((8, 16, 30))
        actions += [self._start] * random.choice((2, 4)) + [self._crash] * random.choice((0, 1, 2))
        actions += [self._leave] * random.choice((0, 1)) + [self._cut] * random.choice((0, 0, 1))
        actions += [self._fail_store] * random.choice((0, 0, 1))
        return actions

    def _publish(self) -> None:
        ready = self.ring.ready()
        if ready:
            publisher = self._random.choice(ready)
            for _ in range(self._random.choice((1, 1, 3))):
                self.publish(publisher, is_confirmed=self._random.random() < 0.3)

    def publish(self, publisher: SimulatedMember, is_confirmed: bool) -> None:
        self._messages += 1
        message = b"%d" % self._messages
        if is_confirmed:
            self._to_confirm[publisher.me].add(message)
            publisher.confirmed_broadcast(message)
        else:
            publisher.broadcast(message)

    def _start(self) -> None:
        busy = {member.me.node for member in self.ring.members.values()}
        free = [node for node in self._nodes if node not in busy]
        if free:
            self.ring.start(self._random.choice(free))

    def _crash(self) -> None:
        members = list(self.ring.members.values())
        for member in self._random.sample(
            members, min(len(members), self._random.choice((1, 1, 2)))
        ):
            member.crash()

    def _leave(self) -> None:
        ready = self.ring.ready()
        if ready:
            self._random.choice(ready).leave()

    def _cut(self) -> None:
        one, other = self._random.sample(self._nodes, 2)
        self.ring.network.cut(one, other)
        delay_s = self._random.choice((0.0, 0.01, 0.05))
        self.ring.clock.call_later(delay_s, self.ring.network.heal, one, other)

    def _fail_store(self) -> None:
        self.ring.store.is_up = False
        self.ring.clock.call_later(self._random.random() * 0.1, self._mend_store)

    def _mend_store(self) -> None:
        self.ring.store.is_up = True

    def _rest(self) -> list[str]:
        """Let the ring come to rest, publish once more from everyone, and judge."""
        ring = self.ring
        self._mend_store()
        ring.store.faults = 0.0
        for one in self._nodes:
            for other in self._nodes:
                ring.network.heal(one, other)
        self._settle()
        survivors = [each for each in ring.survivors() if each.is_ready]
        for each in survivors:
            self.publish(each, is_confirmed=True)
        self._settle()
        return ring.violations() + self._unrest(survivors)

    def _settle(self) -> None:
        clock, waited_s = self.ring.clock, 0.0
        while clock.pending_count and waited_s < REST_S:
            clock.jump(0.1)
            waited_s += 0.1

    def _unrest(self, survivors: list[SimulatedMember]) -> list[str]:
        """Return what is not as it must be at rest."""
        ring, record = self.ring, self.ring.record
        found = []
        if ring.clock.pending_count:
            found.append(f"I7: the ring is not at rest {REST_S} s after the last fault")
        if record is not None and ring.survivors() and len(record.entries) != len(record.alive()):
            found.append(f"I7: the dead are still in {record}")
        if [each.me for each in survivors] != [each.me for each in ring.survivors()]:
            found.append("I7: the ring changed at rest")
        confirmed = ring.history.confirms()
        for each in ring.members.values():
            found += _unrest_of(each, record)
            if missing := self._to_confirm[each.me] - confirmed:
                found.append(f"I7: {each.me} waits for ever for the confirms of {sorted(missing)}")
        return found


def _unrest_of(each: SimulatedMember, record: Group | None) -> list[str]:
    found = []
    if record is None or each.me not in record.alive():
        return [f"I7: {each.me} has not noticed that it was declared dead"]
    if not each.is_ready:
        found.append(f"I7: {each.me} is {each.member.phase.value} for ever")
    elif each.member.view is None or each.member.view.stamp != record.stamp:
        found.append(f"I7: {each.me} has not seen the last version")
    if each.member.pending:
        found.append(f"I7: {each.me} keeps {each.member.pending}")
    if each.is_blocked:
        found.append(f"I7: {each.me} is blocked for ever")
    return found
