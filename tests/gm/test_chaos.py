"""Chaos finds members in the tree of a running broker, and they come back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from leveret.actors.runtime.ref import Ref
from leveret.gm.actor import GmActor
from leveret.gm.callbacks import Callbacks
from leveret.gm.node import RingNode
from leveret.gm.records.group import MemberId
from leveret.gm.requests import ConfirmedBroadcast, WhenJoined
from leveret.server import Address, Broker, Config
from leveret.supervisors.requests import StartChild
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.testing.chaos import Chaos
from leveret.testing.tree_paths import PathError
from rigs.waiting import eventually


class Log(Callbacks):
    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def handle_msg(self, publisher: MemberId, message: bytes) -> None:
        self.messages.append(message)


class Rings(Supervisor):
    def init(self, node: RingNode, logs: list[Log]) -> SupervisorSpec:
        children = tuple(
            ChildSpec(f"gm:{at}", GmActor, args=(node, "g", log)) for at, log in enumerate(logs)
        )
        return SupervisorSpec("one_for_one", intensity=100, children=children)


VERBS: dict[str, Callable[[Chaos, str], object]] = {
    "kill": Chaos.kill,
    "crash": Chaos.crash,
    "exit": lambda chaos, path: chaos.exit(path, "shutdown"),
}


def is_restarted(chaos: Chaos, path: str, member: Ref) -> bool:
    with suppress(PathError):
        return chaos.find(path) != member
    return False


@pytest.mark.parametrize("verb", VERBS)
async def test_a_member_that_chaos_ends_is_started_again(verb: str, tmp_path: Path) -> None:
    logs = [Log() for _ in range(3)]
    config = Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "data")
    async with Broker(config) as broker:
        node = RingNode(broker.runtime)
        assert broker.root is not None
        await broker.runtime.call(
            broker.root,
            StartChild(ChildSpec("rings", Rings, args=(node, logs), type="supervisor")),
        )
        chaos = Chaos(broker, seed=1)
        for round_number in range(3):
            for at in range(3):
                path = f"rings > gm:{at}"
                member = chaos.find(path)
                await broker.runtime.call(member, WhenJoined())
                VERBS[verb](chaos, path)
                await eventually(partial(is_restarted, chaos, path, member))
            members = [chaos.find(f"rings > gm:{at}") for at in range(3)]
            for member in members:
                await broker.runtime.call(member, WhenJoined())
            message = b"%d" % round_number
            await broker.runtime.call(members[0], ConfirmedBroadcast(message), timeout_s=10.0)
            assert all(log.messages[-1] == message for log in logs)
        assert len(chaos.deeds) == 9
