"""The channel actor: methods, scripts, monitors, and how it ends.

What the client sends, in order, and what queues send for messages is the channel's traffic, a plain object
(``traffic.py``). The actor stands for it towards supervisors and monitors, and handles the other mails that
``broker/mail.py`` lists.

``states.py`` says what becomes of a client's input in which state of the channel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import Down, Exit, MonitorRef
from leveret.actors.runtime.timers import Timer
from leveret.amqp.errors import (
    ChannelError,
    HardError,
    InternalError,
    PreconditionFailed,
    SoftError,
)
from leveret.amqp.fields import Method
from leveret.amqp.kernel import METHOD, RUN_KIND, Run
from leveret.amqp.methods import (
    BasicCancel,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpenOk,
    decode,
    encode,
    method_frame,
)
from leveret.amqp.spec import BASIC_PUBLISH, CHANNEL_CLOSE, CHANNEL_CLOSE_OK, method_name
from leveret.broker.channel.consuming.deliveries import Deliveries, NoDeliveries
from leveret.broker.channel.methods import cancel_consumers, resubscribe
from leveret.broker.channel.publishing.publish import Publisher
from leveret.broker.channel.publishing.replies import WaitedEnough
from leveret.broker.channel.reply_consumers import Reply
from leveret.broker.channel.session import END_OF_RUNS, Session, method_of
from leveret.broker.channel.states import Event, State, after
from leveret.broker.channel.traffic import Traffic
from leveret.broker.channel.transaction import Transaction
from leveret.broker.limiter import DeliveryGate
from leveret.broker.mail import (
    ConsumersGone,
    DeliverFromNode,
    PeerEnded,
    ProducerFenced,
    QueueDeleted,
    Resume,
)
from leveret.broker.queue_requests import Leave
from leveret.broker.registry.registry import QueueFailed, QueueUp
from leveret.broker.remote.mail_between_nodes import (
    PrefetchUnused,
    PrefetchWanted,
    RepliesHeld,
)
from leveret.broker.script import Ask, Script, Steps
from leveret.broker.vhost.read_your_writes import await_gone
from leveret.core.log.floods import SOURCE
from leveret.core.log.loggers import logger

log = logger(__name__)

_RUNNING: Final = State.RUNNING
_SETTLEMENT_CHECK_S: Final = 60.0


class ConnectionFailed(Struct, eq=False):
    """A channel met a hard error; the reader closes the connection with it."""

    error: HardError
    channel: int


class ChannelStays(Struct, eq=False):
    """A closing channel answered a channel.close that crossed its own; it waits for close-ok still."""

    number: int


class AllHandled(Struct, eq=False):
    """A channel has handled what its client had sent before connection.close."""

    number: int


class _NextTurn(Struct, eq=False):
    """To itself: a script goes on that has done enough in its last turn."""

    callback: Callable[[Any], None]


class _CheckSettlement:
    """Timer: has a delivery waited too long for its settlement?"""


class Channel(GenServer):
    """One AMQP channel.

    Attributes:
        last_queue: the queue declared last, for methods that leave the name empty.
        traffic: gets all mail of the channel first.
        transaction: None before tx.select.
        check_timer: runs while deliveries wait for their settlement.
    """

    number: int
    session: Session

    def init(self, session: Session, number: int, gate: DeliveryGate) -> None:
        """Start running; channel.open-ok is written by the first turn."""
        self.session = session
        self.number = number
        self.last_queue = ""
        self.publisher = Publisher(self)
        self.traffic = Traffic(self, self.publisher, Deliveries(self, gate))
        self.ref.cell.handler = self.traffic
        self._watched: dict[Ref, MonitorRef] = {}
        self._cancelled: list[bytes] = []
        self._fenced: SoftError | None = None  # by a later epoch, while the channel is busy
        self._script: Script | None = None
        self._scripted: Run = ()  # the method of the script
        self._when_writable: Callable[[Any], None] | None = None
        self._when_commit_goes_on: Callable[[Any], None] | None = None
        self.check_timer: Timer | None = None
        self._oldest_s = 0.0
        self._oldest_tag: int | None = None
        self.send_method(ChannelOpenOk())

    @property
    def deliveries(self) -> Deliveries:
        return self.traffic.deliveries

    @property
    def transaction(self) -> Transaction | None:
        return self.traffic.transaction

    @property
    def settlements(self) -> Deliveries | Transaction:
        """What takes its client's settlements."""
        transaction = self.traffic.transaction
        return self.traffic.deliveries if transaction is None else transaction

    def begin_transaction(self) -> Transaction:
        """Have what the client publishes and settles collected from now on; return the transaction."""
        transaction = self.traffic.transaction = Transaction(self)
        return transaction

    # -- mail ----------------------------------------------------------------------------------

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle a mail that the traffic does not take."""
        handle = _MAILS.get(type(message))
        if handle is None:
            return super().handle_mail(message, sender)
        return handle(self, message)

    def handle_info(self, message: object) -> None:
        if type(message) is Down:
            self._queue_down(message.ref, deleted=False)
        elif type(message) is _CheckSettlement:
            self._check_settlement()
        elif type(message) is WaitedEnough:
            self.publisher.reply_consumers_stall()

    # -- scripts -------------------------------------------------------------------------------

    def run_method(self, steps: Steps, run: Run) -> None:
        """Run the script of a client's method; the channel sends the method that the script returns."""
        self._scripted = run
        self.run_script(steps, self._method_done)

    def run_script(self, steps: Steps, done: Callable[[Any], None]) -> None:
        """Run the steps of a method; runs that come meanwhile are held."""
        self.traffic.is_busy = True
        self._script = Script(self, steps, done, self._script_failed)
        self._script.resume()

    def _method_done(self, answer: Any) -> None:
        self.traffic.is_busy = False
        if answer is not None:
            self.send_method(answer)
        self.tell_postponed()
        self.traffic.resume()

    def _script_failed(self, problem: Exception) -> None:
        self.traffic.is_busy = False
        self.traffic.failed(problem, self._scripted)
        self.traffic.resume()

    def tell_postponed(self) -> None:
        """Tell the client what had to wait while the channel was busy: that consumers are gone, or it is fenced."""
        if self._cancelled:
            self._tell_cancelled()
        self._fail_if_fenced()

    def refuse_during_commit(self) -> None:
        """Close the connection if its client does not wait for tx.commit-ok; as RabbitMQ."""
        if self.transaction is not None and self.transaction.is_waiting:
            try:
                self.refuse_held()
            except HardError as error:
                assert self._script is not None
                self._script.close()
                self.traffic.is_busy = False
                self._when_commit_goes_on = None
                self.fail_hard(error)

    def refuse_held(self) -> None:
        """Raise ChannelError if runs are held; those behind a close may be."""
        if self.traffic.held:
            run = self.traffic.held[0]
            if run[RUN_KIND] != END_OF_RUNS and (ids := method_of(run)) != CHANNEL_CLOSE:
                raise ChannelError("unexpected command while processing 'tx.commit'", ids)

    # -- output --------------------------------------------------------------------------------

    def send_method(self, method: Method) -> None:
        self.session.writer.write(method_frame(self.number, encode(method)))

    def when_writable(self, callback: Callable[[Any], None]) -> None:
        """Call back when the connection takes more again, or its client ends; one script at a time asks for it."""
        self.deliveries.gate.wait(self.ref)
        self._when_writable = callback

    def when_commit_goes_on(self, callback: Callable[[Any], None]) -> None:
        """Call back when what the commit of a transaction waits for may have come."""
        self._when_commit_goes_on = callback

    def commit_goes_on(self) -> None:
        callback, self._when_commit_goes_on = self._when_commit_goes_on, None
        if callback is not None:
            callback(None)

    def next_turn(self, callback: Callable[[Any], None]) -> None:
        """Call back in a later turn, so that others get theirs."""
        self.runtime.again(self.ref, _NextTurn(callback))

    def on_next_turn(self, mail: _NextTurn) -> None:
        mail.callback(None)

    def on_resume(self, mail: Resume) -> None:
        """The connection takes more, or that of a reply consumer: what waited for it goes on."""
        self.publisher.reply_consumer_resumes(mail.channel)
        if mail.channel is self.ref:
            self._wait_no_longer()
            self.deliveries.gate_opens()

    def on_replies_held(self, mail: RepliesHeld) -> None:
        """The client of a reply consumer on another node reads too slowly; a channel that ends sends it no more."""
        if self.traffic.state is _RUNNING:
            self.publisher.replies.held(mail)

    def _wait_no_longer(self) -> None:
        callback, self._when_writable = self._when_writable, None
        if callback is not None:
            callback(None)

    # -- mail of queues ------------------------------------------------------------------------

    def watch(self, target: Ref) -> None:
        """Hear of the end of a queue, or of the channel of a reply consumer."""
        if target not in self._watched:
            self._watched[target] = self.monitor(target)

    def on_deliver_from_node(self, mail: DeliverFromNode) -> None:
        self.deliveries.deliver(mail)
        self.deliveries.from_nodes().delivered(mail)

    def on_prefetch_wanted(self, mail: PrefetchWanted) -> None:
        self.deliveries.from_nodes().prefetch_wanted(mail.queue)

    def on_prefetch_unused(self, mail: PrefetchUnused) -> None:
        self.deliveries.from_nodes().prefetch_unused(mail.queue, mail.count)

    def on_reply(self, mail: Reply) -> None:
        self.deliveries.reply(mail)
        if mail.waiting_bytes:
            self.deliveries.gate.delivery_written(mail.waiting_bytes)

    def on_producer_fenced(self, mail: ProducerFenced) -> None:
        """Fail the channel: its publisher has been replaced."""
        if self.transaction is None:  # a commit fails by itself, since the message is refused
            self._fenced = PreconditionFailed(mail.text, BASIC_PUBLISH)
            if not self.traffic.is_busy:
                self._fail_if_fenced()

    def _fail_if_fenced(self) -> None:
        fenced, self._fenced = self._fenced, None
        if fenced is not None:
            self.fail(fenced)

    def on_consumers_gone(self, mail: ConsumersGone) -> None:
        """Tell the client that their queue is deleted, if it wants to know."""
        gone = [tag for tag in mail.consumers if self.deliveries.remove(tag)]
        if self.session.cancel_notify:
            self._cancelled += gone
            if not self.traffic.is_busy:
                self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        """Name the cancelled consumers; never before the reply to a queue.delete of the same client."""
        tags, self._cancelled = self._cancelled, []
        if self.traffic.state is _RUNNING:
            for tag in tags:
                self.send_method(BasicCancel(tag.decode("utf-8", "surrogateescape"), True))

    def on_queue_deleted(self, mail: QueueDeleted) -> None:
        """Publishes that a deleted queue has not confirmed count as confirmed."""
        self._queue_down(mail.queue, deleted=True)

    def on_queue_up(self, mail: QueueUp) -> None:
        """A queue was restarted: subscribe the consumers again."""
        resubscribe(self, mail.entry)

    def on_queue_failed(self, mail: QueueFailed) -> None:
        cancel_consumers(self, mail.entry)

    def _queue_down(self, queue: Ref, deleted: bool) -> None:
        self.unwatch(queue)
        self.publisher.queue_gone(queue, deleted)
        self.deliveries.queue_gone(queue)

    def unwatch(self, target: Ref) -> None:
        monitor = self._watched.pop(target, None)
        if monitor is not None:
            self.demonitor(monitor)
            if not self._watched:
                self._watched = {}  # a dict keeps the room of keys that were deleted

    # -- settlement time-out -------------------------------------------------------------------

    def expect_settlement(self) -> None:
        if self.check_timer is None and self.session.settings.consumer_timeout_ms:
            self._oldest_tag = None
            self._arm_check()

    def _arm_check(self) -> None:
        timeout_ms = self.session.settings.consumer_timeout_ms
        assert timeout_ms is not None
        period_s = min(_SETTLEMENT_CHECK_S, timeout_ms / 2000)
        self.check_timer = self.start_timer(period_s, _CheckSettlement())

    def _check_settlement(self) -> None:
        """Close the channel when its oldest delivery has been unacked for the time-out.

        A delivery's age counts from the check that first found it the oldest.
        """
        self.check_timer = None
        oldest = self.deliveries.unacked.oldest_tag()
        if oldest is None or self.traffic.state is not _RUNNING:
            return
        now_s = self.runtime.clock.monotonic_s()
        if oldest != self._oldest_tag:
            self._oldest_tag, self._oldest_s = oldest, now_s
        timeout_ms = self.session.settings.consumer_timeout_ms
        assert timeout_ms is not None  # no timer runs without a time-out
        if (now_s - self._oldest_s) * 1000 < timeout_ms or self.traffic.is_busy:
            self._arm_check()
            return
        text = (
            f"delivery acknowledgement on channel {self.number} timed out. Timeout value used:"
            f" {timeout_ms} ms. This timeout value can be configured, see consumers doc guide"
            " to learn more"
        )
        self.fail(PreconditionFailed(text, 0))

    # -- the end -------------------------------------------------------------------------------

    def fail(self, error: SoftError) -> None:
        """Close the channel with a soft error."""
        if self.traffic.state is not _RUNNING:
            return
        self._enter(Event.END_BEGINS)
        method = self.traffic.current if error.method is None else error.method
        self._log_error(error, method)

        def closed(_: object) -> None:
            self._enter(Event.CLOSE_SENT)
            text = error.text.decode("utf-8", "surrogateescape")
            self.send_method(ChannelClose(error.code, text, method >> 16, method & 0xFFFF))
            self._method_done(None)

        self.run_script(self._leave(), closed)

    def _log_error(self, error: SoftError, method: int) -> None:
        session = self.session
        log.error(
            "channel error name=%s connection_name=%s user=%s vhost=%s channel=%d method=%s code=%d"
            " text=%s",
            session.name,
            session.client_name,
            session.user.name,
            session.vhost.name,
            self.number,
            method_name(method),
            error.code,
            error.log_text,
            extra={SOURCE: session.source},
        )

    def run_at_end(self, run: Run) -> None:
        """Handle a run of a client that ends, or whose channel does.

        channel.close is answered, close-ok ends the channel, all else is discarded.
        """
        if run[RUN_KIND] == END_OF_RUNS:
            self.post(self.session.reader, AllHandled(self.number))
        elif run[RUN_KIND] == METHOD and self.traffic.state is State.CLOSING:
            _, _, ids, arguments = run
            if ids == CHANNEL_CLOSE:
                decode(ids, arguments)
                self.send_method(ChannelCloseOk())
                self.post(self.session.reader, ChannelStays(self.number))
            elif ids == CHANNEL_CLOSE_OK:
                self.stop()

    def client_closes(self) -> None:
        """Answer channel.close, and stop, when the queues have their messages back."""
        self._enter(Event.END_BEGINS)

        def closed(_: object) -> None:
            self.send_method(ChannelCloseOk())
            self.stop()

        self.run_script(self._leave(), closed)

    def _leave(self) -> Steps:
        self.publisher.send_confirms()
        self.publisher.close()
        temporary = self.deliveries.auto_delete_queues()
        yield from self._give_back(self.deliveries)
        with suppress(InternalError):  # the channel ends all the same
            yield from await_gone(self.session.vhost, temporary)

    def _give_back(self, deliveries: Deliveries) -> Steps:
        queues = yield from deliveries.end()
        for queue in queues:
            yield Ask(queue, Leave(self.ref))  # a dead queue has nothing to take back

    def on_peer_ended(self, mail: PeerEnded) -> None:
        """Give back all deliveries now; publishes, and all else that the client has sent, go on."""
        if self.deliveries.is_settling:
            self.runtime.again(self.ref, mail)  # what its last method settles does not come back
        elif self.transaction is not None and self.transaction.is_applying:
            self.transaction.postponed.append(mail)
        elif self.traffic.state is _RUNNING:
            deliveries = self.deliveries
            self.traffic.deliveries = NoDeliveries(self, deliveries.gate)
            Script(self, self._give_back(deliveries), lambda _: None).resume()
            self._wait_no_longer()

    def on_exit(self, exit_: Exit) -> None:
        """End with the connection, but not before the rest of a settlement or commit.

        Messages that the client has settled must not come back.
        """
        is_applying = self.transaction is not None and self.transaction.is_applying
        if not is_applying and not self.deliveries.is_settling:
            self.stop(exit_.reason)
        self.deliveries.gate.close()
        self.traffic.held.clear()
        if self.transaction is not None and is_applying:
            self.transaction.postponed.append(exit_)
        else:
            self.runtime.again(self.ref, exit_)

    def fail_hard(self, error: HardError) -> None:
        """Have the reader close the connection with a hard error."""
        if error.method is None:
            error.method = self.traffic.current
        self._enter(Event.HARD_ERROR)
        self.traffic.held.clear()
        self.post(self.session.reader, ConnectionFailed(error, self.number))

    def _enter(self, event: Event) -> None:
        self.traffic.state = after(self.traffic.state, event)

    def terminate(self, reason: object) -> None:
        """Settle what the client has settled, if it crashed; take back its blocks of the connection's reading."""
        self.deliveries.settle_rest_now()
        if self.traffic.is_busy and self._script is not None:
            self._script.close()
        self.publisher.close()
        self.traffic.close()
        self.session.left_queues += self.deliveries.auto_delete_queues()
        self.deliveries.remove_all()
        self.deliveries.unacked.free_later(self.runtime.clock)


_MAILS: Final[dict[type, Callable[[Channel, Any], None]]] = {
    _NextTurn: Channel.on_next_turn,
    DeliverFromNode: Channel.on_deliver_from_node,
    PrefetchWanted: Channel.on_prefetch_wanted,
    PrefetchUnused: Channel.on_prefetch_unused,
    Reply: Channel.on_reply,
    ProducerFenced: Channel.on_producer_fenced,
    ConsumersGone: Channel.on_consumers_gone,
    QueueDeleted: Channel.on_queue_deleted,
    QueueUp: Channel.on_queue_up,
    QueueFailed: Channel.on_queue_failed,
    Resume: Channel.on_resume,
    RepliesHeld: Channel.on_replies_held,
    PeerEnded: Channel.on_peer_ended,
    Exit: Channel.on_exit,
}
