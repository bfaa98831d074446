"""The publisher of the node's own messages: the firehose's and the log's.

They wait at their source (``own_messages.py``), which is bounded. The actor takes them one by one, routes them and
sends them to their queues, in turns of ``PUBLISH_TURN_WORK``. It has credit with each queue as a channel has. A
channel waits when a queue withholds credit; this publisher skips the queue, so that neither clients nor the log wait
for a queue. The log has counts of skipped messages, and of messages that a source has dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from leveret.actors.credit import CreditSender
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import Down
from leveret.amqp.properties import examine
from leveret.broker.mail import CreditGrant, OwnMessage, Publish
from leveret.broker.node.own_messages import CONTINUE
from leveret.broker.registry.cluster_nodes import running_by_home
from leveret.broker.remote.mail_between_nodes import NodePublish
from leveret.core.limits import FAN_OUT_QUEUES, PUBLISH_TURN_WORK
from leveret.core.log.loggers import logger
from leveret.core.message import origin_of
from leveret.routing.router import Routed, route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import MonitorRef
    from leveret.broker.node.node import Node
    from leveret.broker.registry.registry import QueueEntry
    from leveret.core.message import Message

log = logger(__name__)

REPORT_S: Final = 10.0  # from the first message that is left out to the line that counts them

# Work, in units of about 0.1 us, as in ``channel/publishing/publish.py``.
_MESSAGE_WORK: Final = 300  # to make and route one
_MAIL_WORK: Final = 20

_REPORT: Final = "report"


class _UnderWay(Struct, eq=False):
    """A message that is being routed, or sent to its queues: ``at`` of them have it."""

    message: Message
    routed: Routed[QueueEntry]
    at: int = 0


class OwnPublisher(GenServer):
    """Publishes the messages of the sources."""

    def init(self, node: Node) -> None:
        self._node = node
        self._own = node.own_messages
        self._credits: dict[Ref, tuple[CreditSender, MonitorRef]] = {}
        self._under_way: _UnderWay | None = None
        self._left_out = 0
        self._has_timer = False
        self._own.started(self.ref)

    def handle_cast(self, message: Any) -> None:
        if type(message) is CreditGrant:
            self._granted(message)
        else:
            assert message == CONTINUE
            self._continue()

    def handle_info(self, message: Any) -> None:
        """Forget a queue that has ended; or log how many messages were dropped."""
        if type(message) is Down:
            self._credits.pop(message.ref, None)
            return
        assert message == _REPORT
        self._has_timer = False
        count, self._left_out = self._left_out + self._own.take_dropped(), 0
        if count:
            log.warning("messages of the firehose or the log left out count=%d", count)

    def _continue(self) -> None:
        left = PUBLISH_TURN_WORK
        while left > 0:
            work = self._send_some() if self._under_way is not None else self._begin()
            if not work:
                self._own.sleep()
                break
            left -= work
        else:
            self.runtime.again(self.ref, CONTINUE)
        self._count_dropped()

    def _begin(self) -> int:
        """Route the next message; return the work, 0 when none waits. Sources take turns."""
        sources = self._own.sources
        for _ in range(len(sources)):
            sources.append(source := sources.pop(0))
            message = source.next()
            if message is not None:
                return _MESSAGE_WORK + len(message.head) + self._route(message)
        return 0

    def _route(self, own: OwnMessage) -> int:
        vhost = self._node.vhosts.get(own.vhost)
        exchange = vhost.topology.exchanges.get(own.exchange) if vhost is not None else None
        if vhost is None or exchange is None:
            return 0
        name = own.exchange.encode("utf-8", "surrogateescape")
        message = (origin_of(name, own.routing_key), own.head, own.body)
        routed = route(
            vhost.topology, exchange, [own.routing_key], examine(own.head), PUBLISH_TURN_WORK
        )
        self._under_way = _UnderWay(message, routed)
        return routed.work

    def _send_some(self) -> int:
        """Route or send the next part of the message under way; return the work."""
        under_way = self._under_way
        assert under_way is not None
        routed = under_way.routed
        before = routed.work
        if not routed.advance(PUBLISH_TURN_WORK):
            return routed.work - before
        queues = routed.queues[under_way.at : under_way.at + FAN_OUT_QUEUES]
        under_way.at += len(queues)
        if under_way.at >= len(routed.queues):
            self._under_way = None
        self._send(queues, under_way.message)
        return 1 + routed.work - before + _MAIL_WORK * len(queues)

    def _send(self, queues: Sequence[QueueEntry], message: Message) -> None:
        _, head, body = message
        size_bytes = len(head) + len(body)
        publisher = (self.ref, 1, size_bytes, 0)
        for home, entries in running_by_home(queues).items():
            refs = [each.ref for each in entries if each.ref and self._spend(each.ref, size_bytes)]
            run = NodePublish(self.ref, [ref.num for ref in refs], [message], False, size_bytes, 0)
            run.head_bytes = len(head)
            self.runtime.send(home.delegates[entries[0].vhost_name], run, self.ref)
        for entry in queues:
            ref = entry.ref
            if ref is None or entry.is_remote or not self._spend(ref, size_bytes):
                continue
            mail = Publish([message], False, [publisher], head_bytes=len(head))
            self.runtime.send(ref, mail)

    def _spend(self, queue: Ref, size_bytes: int) -> bool:
        """Spend credit for a message; return False, to skip the queue, if there is none."""
        credit = self._credit(queue)
        if credit.is_blocked:
            self._left_out += 1
            return False
        credit.spend(1, size_bytes)
        return True

    def _credit(self, queue: Ref) -> CreditSender:
        account = self._credits.get(queue)
        if account is None:
            account = self._credits[queue] = (CreditSender(), self.monitor(queue))
        return account[0]

    def _granted(self, mail: CreditGrant) -> None:
        account = self._credits.get(mail.queue)
        if account is None:
            return
        credit, monitor = account
        credit.grant(mail.messages, mail.size_bytes)
        if mail.is_last and credit.is_whole:
            self.demonitor(monitor)
            del self._credits[mail.queue]

    def _count_dropped(self) -> None:
        has_dropped = self._left_out or any(source.dropped for source in self._own.sources)
        if has_dropped and not self._has_timer:
            self._has_timer = True
            self.start_timer(REPORT_S, _REPORT)
