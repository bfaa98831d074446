"""The delegate: publishes and calls of channels on other nodes to the queues of a vhost on this node.

One mail brings a run for all queues of this node that it was routed to (RabbitMQ's ``delegate`` does the same). The
delegate gives it to the store, as a channel does for queues of its own node, and sends each queue its ``Publish`` with
the remote channel as publisher: confirms and credit go to the channel without it.

Calls take the same way, behind the publishes of their channel; the queue answers the channel directly. Replies to a
consumer of this node (direct reply-to) come here as well. The delegate also declares queues that a locator has placed
on its node (``queue_declare.py``).

While the store's disk is behind, the delegate holds publishes, and calls of the same channels. The queues grant no
credit for held publishes, so the channels stop when their credit is used up.

The delegate belongs to the failure unit of its vhost: the end of either is the end of both, so a channel that waits for
a queue need not watch the delegate.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.actors.runtime.calls import Forward
from leveret.amqp.errors import ProtocolError, SoftError
from leveret.broker.mail import Publish
from leveret.broker.queue.storage.store_writes import write_for
from leveret.broker.remote.mail_between_nodes import (
    FindReplyConsumer,
    NodePublish,
    NodeReplies,
    QueueGone,
    RepliesStalled,
)
from leveret.broker.script import Script
from leveret.broker.vhost.queue_declare import DelegatedDeclare, declare_for_remote
from leveret.core.limits import PUBLISH_TURN_WORK
from leveret.metadata.tables import QueueRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.registry.registry import QueueEntry
    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.wal.backpressure import Backpressure

_MAIL_WORK = 10  # units of about 0.1 us, as in ``channel/publishing/publish.py``


class Delegate(GenServer):
    """The delegate of one vhost."""

    def init(self, vhost: VHost) -> None:
        """Begin; the queue directory announces it to the other nodes."""
        assert vhost.local_queues is not None, "it is for nodes of a cluster"
        self._vhost = vhost
        self._queues = vhost.local_queues
        self._store = vhost.store
        self._held: deque[NodePublish | tuple[Ref, Forward]] = deque()
        self._holds_from: set[Ref] = set()  # channels
        self._backpressure: Backpressure | None = None  # that is waited for
        self._work_left = PUBLISH_TURN_WORK
        self._queues.delegate_started(self.ref)

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        kind = type(message)
        if kind is NodePublish:
            if self._backpressure is not None:
                self._hold(message.channel, message)
            else:
                self._publish(message)
            return None
        if kind is NodeReplies:
            if self._vhost.reply_addresses is not None:
                self._vhost.reply_addresses.take(message)
            return None
        if kind is RepliesStalled:
            if self._vhost.reply_addresses is not None:
                self._vhost.reply_addresses.told_stalled(message)
            return None
        if kind is Forward:
            if self._holds_from and sender in self._holds_from:
                self._held.append((sender, message))
            else:
                self._forward(message)
            return None
        return super().handle_mail(message, sender)

    def handle_call(self, request: Any, frm: From | None) -> Any:
        """Declare a queue, wait for the end of a deletion, or look for a reply consumer."""
        if type(request) is FindReplyConsumer:
            addresses = self._vhost.reply_addresses
            return addresses is not None and addresses.has(request.key)
        if type(request) is DelegatedDeclare:
            steps = declare_for_remote(self._vhost, request)
        elif type(request) is QueueGone:
            steps = self._vhost.until_deleted(QueueRow(self._vhost.name, request.name))
        else:
            return super().handle_call(request, frm)
        assert frm is not None, request
        answer = partial(self.runtime.reply, frm)
        Script(self, steps, answer, partial(self._failed, answer)).resume()
        return NOREPLY

    def _failed(self, answer: Callable[[object], None], problem: Exception) -> None:
        if not isinstance(problem, ProtocolError):
            raise problem
        answer(problem if isinstance(problem, SoftError) else False)

    def terminate(self, reason: object) -> None:
        if self._backpressure is not None:
            self._backpressure.forget(self._store_follows)

    def _forward(self, call: Forward) -> None:
        self.runtime.send(call.to, call.request)

    def _publish(self, run: NodePublish) -> None:
        """Send a run to its queues that still run; the channel's monitors report the others."""
        by_number = self._queues.by_number
        entries = [by_number[number] for number in run.queues if number in by_number]
        if run.persistent:
            self._send(run, entries, True)
            return
        persisting = [entry for entry in entries if entry.persists_all]
        if persisting:
            self._send(run, persisting, True)
            entries = [entry for entry in entries if not entry.persists_all]
        self._send(run, entries, False)

    def _send(self, run: NodePublish, entries: Sequence[QueueEntry], persistent: bool) -> None:
        messages, store = run.messages, self._store.msg_store
        count, first_msg_no = len(messages), 0
        if persistent:
            body_bytes = run.size_bytes - run.head_bytes
            first_msg_no = write_for(store, entries, messages, run.is_awaited, body_bytes)
            if store is not None and store.backpressure.is_on and self._backpressure is None:
                self._backpressure = store.backpressure
                self._backpressure.wait(self._store_follows)
        publisher = (run.channel, count, run.size_bytes, run.first_seqno)
        for entry in entries:
            assert entry.ref is not None
            msg_no = first_msg_no if entry.queue_no else 0
            publish = Publish(
                messages,
                persistent,
                [publisher],
                run.expiration_ms,
                msg_no,
                run.head_bytes,
                run.producer_seqs,
                by_queue=run.by_queue,
            )
            self.runtime.send(entry.ref, publish)
        self._work_left -= len(entries) * (_MAIL_WORK + count)
        if self._work_left <= 0:
            self._work_left = PUBLISH_TURN_WORK
            self.runtime.end_turn(self.ref)

    # Back pressure.

    def _hold(self, channel: Ref, message: NodePublish) -> None:
        self._held.append(message)
        self._holds_from.add(channel)

    def _store_follows(self) -> None:
        self.runtime.run_as(self.ref, self._send_held)

    def _send_held(self) -> None:
        """Handle held mail, until the store is behind again."""
        self._backpressure = None
        held = self._held
        while held and self._backpressure is None:
            item = held.popleft()
            if isinstance(item, NodePublish):
                self._publish(item)
            else:
                self._forward(item[1])
        if not held:
            self._holds_from.clear()
