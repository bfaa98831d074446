"""Starts of vhosts: each of them is started, and clients are let in when all queues run.

Tests: broker/vhost/features.py
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.actors.gen_server import GenServer
from leveret.amqp import methods as m
from leveret.broker.node.bootstrap import OTHERS_WAIT_S
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.script import Script, Steps, Until
from leveret.broker.vhost.states import State
from leveret.broker.vhost.vhost import VHost
from leveret.metadata.tables import QueueRow, VhostRow
from rigs.broker_rig import Rig, durable


def test_all_vhosts_are_started_where_the_first_serves_at_once() -> None:
    rig = Rig([VhostRow("v"), VhostRow("w")])

    assert {name: vhost.state.now for name, vhost in rig.node.vhosts.items()} == {
        "/": State.RUNNING, "v": State.RUNNING, "w": State.RUNNING,
    }  # fmt: skip


def test_a_vhost_lets_clients_in_when_all_its_queues_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message for a queue that has not been started yet would be confirmed, and be gone."""
    waiting: list[Any] = []
    start = VHost.start_queue

    def started(vhost: VHost, entry: QueueEntry) -> Steps:
        if entry.name == "late":
            yield Until(waiting.append)
        return (yield from start(vhost, entry))

    monkeypatch.setattr(VHost, "start_queue", started)
    rig = Rig([VhostRow("serves"), QueueRow("/", "late", queue_no=1)])
    rig.jump(OTHERS_WAIT_S)
    early = rig.client()
    early.log_in()
    closed = early.take()[-1]
    assert (closed.reply_code, closed.reply_text) == (
        541, "INTERNAL_ERROR - access to vhost '/' refused for user 'guest': vhost '/' is down"
    )  # fmt: skip

    waiting.pop()(None)
    rig.settle()
    client = rig.session()
    assert client.ask(1, durable("late", passive=True)) == m.QueueDeclareOk("late", 0, 0)


class Starter(GenServer):
    """Asks for the start of a queue, as a declaration does, or the vhost."""

    def init(self, vhost: VHost, entry: QueueEntry) -> None:
        Script(self, vhost.start_queue(entry), self._over).resume()

    def _over(self, _: object) -> None:
        self.stop()


def new_queue() -> tuple[Rig, VHost, QueueEntry]:
    rig = Rig()
    vhost = rig.node.vhosts["/"]
    entry = QueueEntry("/", "q", durable=True, on_deleted=vhost.queue_deleted, queue_no=1)
    vhost.register(entry)
    return rig, vhost, entry


def running_queues(vhost: VHost) -> int:
    assert vhost.queues_sup is not None
    actor: Any = vhost.queues_sup.cell.actor
    return len(actor.supervisor_core.children)


def test_a_queue_that_two_ask_for_is_started_once() -> None:
    """A declaration that waits for its row while the vhost starts again: two pairs would share the messages."""
    rig, vhost, entry = new_queue()
    both = [rig.runtime.spawn(Starter, vhost, entry) for _ in range(2)]
    rig.settle()

    assert entry.is_running
    assert running_queues(vhost) == 1
    assert not any(each.is_alive for each in both)


def test_a_queue_that_is_deleted_before_its_start_is_not_started() -> None:
    rig, vhost, entry = new_queue()
    starter = rig.runtime.spawn(Starter, vhost, entry)
    assert running_queues(vhost) == 0
    entry.deleted()
    rig.settle()

    assert running_queues(vhost) == 0
    assert not starter.is_alive
