"""The channel: its client's runs, in order, what queues send it, scripts of methods, monitors, and how it ends.

The reader hands a channel its runs (a list, for each read of the socket). A channel is strictly sequential towards
its client: while a method waits for an answer (a script runs), or a turn has done enough, the runs behind it are held,
and the connection stops reading if there are any. Deliveries, confirms and credit go on.

Its parts: ``Publisher`` takes publishes, ``Deliveries`` has consumers and unacked messages, ``Transaction`` collects
both after tx.select, ``methods.py`` has the methods. ``broker/mail.py`` lists the mails; ``states.py`` says what
becomes of a client's input in which state of the channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import Down, Exit
from leveret.amqp.errors import (
    ChannelError,
    HardError,
    InternalError,
    PreconditionFailed,
    SoftError,
)
from leveret.amqp.kernel import ACK, METHOD, OVERSIZE, PUBLISH, RUN_KIND, Run
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
from leveret.broker.channel import methods
from leveret.broker.channel.consuming.deliveries import Deliveries, NoDeliveries
from leveret.broker.channel.publishing.publish import METHOD_WORK, Publisher
from leveret.broker.channel.publishing.replies import WaitedEnough
from leveret.broker.channel.reply_consumers import Reply
from leveret.broker.channel.routes import WORK_S
from leveret.broker.channel.session import END_OF_RUNS, REFUSED, Block, Session, is_long, method_of
from leveret.broker.channel.settlement_timeout import CheckSettlement, SettlementTimeout
from leveret.broker.channel.states import Event, State, after
from leveret.broker.channel.transaction import Transaction
from leveret.broker.mail import (
    AllHandled,
    ChannelStays,
    Confirm,
    ConnectionFailed,
    ConsumersGone,
    CreditGrant,
    Deliver,
    DeliverFromNode,
    PeerEnded,
    ProducerFenced,
    QueueDeleted,
    Resume,
)
from leveret.broker.queue_requests import Leave
from leveret.broker.registry.registry import QueueFailed, QueueUp
from leveret.broker.remote.mail_between_nodes import PrefetchUnused, PrefetchWanted, RepliesHeld
from leveret.broker.script import Ask, Script, Steps
from leveret.broker.vhost.auth.auth_backends import Question
from leveret.broker.vhost.read_your_writes import await_gone
from leveret.core.limits import PUBLISH_TURN_WORK
from leveret.core.log.floods import SOURCE
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import MonitorRef
    from leveret.amqp.fields import Method
    from leveret.broker.limiter import DeliveryGate

log = logger(__name__)

_RUNNING: Final = State.RUNNING
_FIRST_TURN_WORK: Final = PUBLISH_TURN_WORK // 2  # sockets with bytes are read one after the other
_HELD_STEP: Final = 64  # held runs that are taken up at once


class _NextTurn:
    """To itself: a script goes on that has done enough in its last turn."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callback = callback


class _Continue:
    """To itself: handle the runs that a turn's budget cut short."""

    __slots__ = ()


_CONTINUE: Final = _Continue()


class Channel(GenServer):
    """One AMQP channel.

    Attributes:
        last_queue: the queue declared last, for methods that leave the name empty.
        transaction: it takes the client's settlements; None before tx.select: the deliveries do.
        state: says what becomes of its client's runs.
        current: the ids of the method that is handled, for its error.
        is_busy: a method waits, or work is left for a later turn.
        held: runs that wait for the end of that.
        is_bulk_turn: the present turn was waited for in the bulk queue, and may do more work.
    """

    __slots__ = ("_asking", "_blocks_reading", "_cancelled", "_fenced", "_is_resuming", "_script",
        "_scripted", "_watched", "_when_commit_resumes", "_when_writable", "current", "deliveries", "held", "is_bulk_turn", "is_busy",
        "last_queue", "number", "publisher", "session", "settlement_timeout", "state", "transaction")  # fmt: skip

    def init(self, session: Session, number: int, gate: DeliveryGate) -> None:
        """Start running; channel.open-ok is written by the first turn."""
        # First what each message needs: compiled, fields lie in memory in this order.
        self.session = session
        self.number = number
        self.is_busy = False
        self.current = 0
        self.state = State.RUNNING
        self.publisher = Publisher(self)
        timeout_ms = session.settings.consumer_timeout_ms
        self.settlement_timeout = SettlementTimeout(self, self.runtime.clock, timeout_ms)
        self.deliveries: Deliveries = Deliveries(self, gate)
        self.transaction: Transaction | None = None
        self.held: deque[Run] = deque()
        self._asking: Run | None = None  # until a back end has answered
        self._blocks_reading = False
        self.is_bulk_turn = False
        self._is_resuming = False
        self.last_queue = ""
        self._watched: dict[Ref, MonitorRef] = {}
        self._cancelled: list[bytes] = []
        self._fenced: SoftError | None = None  # by a later epoch, while the channel is busy
        self._script: Script | None = None
        self._scripted: Run = ()  # the method of the script
        self._when_writable: Callable[[Any], None] | None = None
        self._when_commit_resumes: Callable[[Any], None] | None = None
        self.send_method(ChannelOpenOk())

    @property
    def settlements(self) -> Deliveries | Transaction:
        """What takes its client's settlements."""
        return self.deliveries if self.transaction is None else self.transaction

    def begin_transaction(self) -> None:
        """Have what the client publishes and settles collected from now on."""
        self.transaction = transaction = Transaction(self)
        self.publisher.select_transaction(transaction)

    def declared(self, name: str) -> None:
        """Use a queue for all later methods with an empty queue name."""
        self.last_queue = name

    # -- mail ----------------------------------------------------------------------------------

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        """Handle a mail: mails of ordinary messages here, all others through ``_MAILS``."""
        kind = type(message)
        if kind is list:
            session, publisher = self.session, self.publisher
            chain = session.interceptors
            runs: list[Run] = message if chain is None else chain.published(session, message)
            if self.is_busy:  # a method waits: they are held
                self._hold_behind(runs)
                return None
            publisher.work_left = _FIRST_TURN_WORK
            publisher.is_long_work = False
            self._handle_runs(runs)
            if publisher.confirms is not None:
                publisher.send_confirms()
        elif kind is Deliver:
            delivery: Deliver = message
            self.deliveries.deliver(delivery)
            if delivery.waiting_bytes:
                self.deliveries.gate.delivery_written(delivery.waiting_bytes)
        elif kind is Confirm:
            confirm: Confirm = message
            confirms = self.publisher.confirms
            if confirms is not None:
                confirms.answer(confirm.queue, confirm.ranges, confirm.ok)
                self.publisher.send_confirms()
        elif kind is CreditGrant:
            self._granted(message)
        elif kind is _Continue:
            self._next_turn()
        else:
            return self._handle_other(message, sender)
        return None

    def _handle_other(self, message: Any, sender: Ref | None) -> object:
        handle = _MAILS.get(type(message))
        return super().handle_mail(message, sender) if handle is None else handle(self, message)

    def _granted(self, mail: CreditGrant) -> None:
        publisher = self.publisher
        publisher.credit.granted(mail.queue, mail.messages, mail.size_bytes)
        if mail.is_last and publisher.forget_idle(mail.queue):
            self.unwatch(mail.queue)

    def handle_info(self, message: object) -> None:
        if type(message) is Down:
            self._queue_down(message.ref, deleted=False)
        elif type(message) is CheckSettlement:
            self._check_settlement()
        elif type(message) is WaitedEnough:
            self.publisher.reply_consumers_stall()

    def _check_settlement(self) -> None:
        oldest = self.deliveries.unacked.oldest_tag() if self.state is _RUNNING else None
        error = self.settlement_timeout.check(oldest, self.is_busy)
        if error is not None:
            self.fail(error)

    # -- runs, in order ------------------------------------------------------------------------

    def _handle_runs(self, runs: list[Run]) -> None:
        """Handle runs, in order; hold the rest when a method waits or the turn has done enough."""
        publisher = self.publisher
        for position, run in enumerate(runs):
            kind: int = run[RUN_KIND]
            rest = None
            try:
                if kind == PUBLISH and self.state is _RUNNING:
                    self.current = BASIC_PUBLISH
                    rest = publisher.publish(run)
                    if rest is None and publisher.work_left > 0:
                        continue
                elif kind == METHOD and not self.is_bulk_turn and is_long(run, publisher.work_left):
                    self.held.extendleft(reversed(runs[position:]))
                    self.runtime.turns.expect(self.ref, len(run[-1]) * WORK_S)
                    self._yield()
                    return
                else:
                    publisher.work_left -= METHOD_WORK
                    if kind == ACK and self.state is _RUNNING:
                        _, _, tags = run
                        if self.transaction is None:
                            self.deliveries.acked(tags)
                        else:
                            self.transaction.acked(tags)
                    else:
                        self._run(run)
            except (SoftError, HardError, Question) as problem:
                self._run_failed(problem, run)
            if self.is_busy:
                self._hold(runs[position + 1 :])
                return
            if (
                rest is not None
                or publisher.fan_out is not None
                or (publisher.work_left <= 0 and (position + 1 < len(runs) or self.held))
            ):
                cut = [] if rest is None else [rest]
                self._continue_later([*cut, *runs[position + 1 :]])
                return

    def _run(self, run: Run) -> None:
        kind: int = run[RUN_KIND]
        if self.state is not _RUNNING or kind == END_OF_RUNS:
            self.run_at_end(run)
        elif kind == METHOD:
            self._method(run)
        elif kind == OVERSIZE:
            self.current = BASIC_PUBLISH
            _, _, _, size_bytes = run
            limit = self.session.settings.message_bytes_max
            raise PreconditionFailed(
                f"message size {size_bytes} is larger than configured max size {limit}"
            )
        elif kind == REFUSED:
            self.current = BASIC_PUBLISH
            _, _, error = run
            raise error

    def _method(self, run: Run) -> None:
        publisher = self.publisher
        ids: int
        arguments: bytes
        _, _, ids, arguments = run
        self.current = ids
        publisher.work_left -= len(arguments)  # decoded, encoded and compared several times
        method = decode(ids, arguments)
        if ids == CHANNEL_CLOSE:
            self.client_closes()
            return
        handler = methods.HANDLERS.get(ids)
        if handler is None:
            raise methods.unimplemented()
        clock = self.runtime.clock
        since_s = clock.monotonic_s()
        steps = handler(self, method)
        if steps is not None:
            self.run_method(steps, run)
        # A method with short arguments may remove or search much: it is charged by its time, too.
        publisher.work_left -= int((clock.monotonic_s() - since_s) / WORK_S)

    def _run_failed(self, problem: Exception, run: Run) -> None:
        """Close the channel or the connection, or have a back end answer and handle the run again."""
        if isinstance(problem, SoftError):
            self.fail(problem)
        elif isinstance(problem, HardError):
            self.fail_hard(problem)
        elif isinstance(problem, Question):
            self._wait_for(problem, run)
        else:
            raise problem

    def _wait_for(self, question: Question, run: Run) -> None:
        """Handle a run again when a back end has answered; nothing of it has been done."""
        self.is_busy = True
        self._asking = run
        question.when_answered(partial(self.runtime.run_as, self.ref, self._answered))

    def _answered(self) -> None:
        run, self._asking = self._asking, None
        if run is not None:
            self.held.appendleft(run)
            self._next_turn()

    # -- held runs -----------------------------------------------------------------------------

    def _hold(self, runs: list[Run]) -> None:
        """Put the runs that this turn has not handled in front of the held runs."""
        self.held.extendleft(reversed(runs))
        self._block_reading()
        self.refuse_during_commit()

    def _hold_behind(self, runs: list[Run]) -> None:
        """Put runs that have just come behind the held runs."""
        self.held.extend(runs)
        self._block_reading()
        self.refuse_during_commit()

    def _continue_later(self, runs: list[Run]) -> None:
        """Leave runs, or a fan-out, to a later turn, so that others get theirs; nothing more is read before."""
        self._hold(runs)
        self._yield()

    def _yield(self) -> None:
        self.is_busy = True
        self.runtime.again(self.ref, _CONTINUE)

    def _next_turn(self) -> None:
        self.is_busy = False
        self.tell_postponed()
        self.publisher.work_left = PUBLISH_TURN_WORK
        self.is_bulk_turn = True
        self._take_up()
        self.is_bulk_turn = False

    def _take_up(self) -> None:
        """Continue a fan-out, then handle held runs, until a method waits again or the turn has done enough.

        A method that does not wait ends inside of it, and the runs behind it stay in order.
        """
        held, publisher = self.held, self.publisher
        if self._is_resuming:
            return
        if not self.is_busy and (held or publisher.fan_out is not None):
            if publisher.work_left <= 0:
                self._continue_later([])
            else:
                self._is_resuming = True
                publisher.continue_fan_out()
                if publisher.fan_out is not None or (held and publisher.work_left <= 0):
                    self._continue_later([])
                while held and not self.is_busy:
                    self._handle_runs([held.popleft() for _ in range(min(len(held), _HELD_STEP))])
                self._is_resuming = False
                publisher.send_confirms()
        self._unblock_reading()

    def _block_reading(self) -> None:
        if not self._blocks_reading and (self.held or self.publisher.fan_out is not None):
            self._blocks_reading = True
            self.session.read_control.block(Block.HELD_RUNS)

    def _unblock_reading(self) -> None:
        if self._blocks_reading and not self.held and self.publisher.fan_out is None:
            self._blocks_reading = False
            self.session.read_control.unblock(Block.HELD_RUNS)

    # -- scripts -------------------------------------------------------------------------------

    def run_method(self, steps: Steps, run: Run) -> None:
        """Run the script of a client's method; the channel sends the method that the script returns."""
        self._scripted = run
        self.run_script(steps, self._method_done)

    def run_script(self, steps: Steps, done: Callable[[Any], None]) -> None:
        """Run the steps of a method; runs that come meanwhile are held."""
        self.is_busy = True
        self._script = Script(self, steps, done, self._script_failed)
        self._script.resume()

    def _method_done(self, answer: Any) -> None:
        self.is_busy = False
        if answer is not None:
            self.send_method(answer)
        self.tell_postponed()
        self._take_up()

    def _script_failed(self, problem: Exception) -> None:
        self.is_busy = False
        self._run_failed(problem, self._scripted)
        self._take_up()

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
                self.is_busy = False
                self._when_commit_resumes = None
                self.fail_hard(error)

    def refuse_held(self) -> None:
        """Raise ChannelError if runs are held; those behind a close may be."""
        if self.held:
            run = self.held[0]
            if run[RUN_KIND] != END_OF_RUNS and (ids := method_of(run)) != CHANNEL_CLOSE:
                raise ChannelError("unexpected command while processing 'tx.commit'", ids)

    # -- output --------------------------------------------------------------------------------

    def send_method(self, method: Method) -> None:
        self.session.writer.write(method_frame(self.number, encode(method)))

    def when_writable(self, callback: Callable[[Any], None]) -> None:
        """Call back when the connection takes more again, or its client ends; one script at a time asks for it."""
        self.deliveries.gate.wait(self.ref)
        self._when_writable = callback

    def when_commit_resumes(self, callback: Callable[[Any], None]) -> None:
        """Call back when what the commit of a transaction waits for may have come."""
        self._when_commit_resumes = callback

    def resume_commit(self) -> None:
        callback, self._when_commit_resumes = self._when_commit_resumes, None
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
        if self.state is _RUNNING:
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
            if not self.is_busy:
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
            if not self.is_busy:
                self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        """Name the cancelled consumers; never before the reply to a queue.delete of the same client."""
        tags, self._cancelled = self._cancelled, []
        if self.state is _RUNNING:
            for tag in tags:
                self.send_method(BasicCancel(tag.decode("utf-8", "surrogateescape"), True))

    def on_queue_deleted(self, mail: QueueDeleted) -> None:
        """Publishes that a deleted queue has not confirmed count as confirmed."""
        self._queue_down(mail.queue, deleted=True)

    def on_queue_up(self, mail: QueueUp) -> None:
        """A queue was restarted: subscribe the consumers again."""
        methods.resubscribe(self, mail.entry)

    def on_queue_failed(self, mail: QueueFailed) -> None:
        methods.cancel_consumers(self, mail.entry)

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

    # -- the end -------------------------------------------------------------------------------

    def fail(self, error: SoftError) -> None:
        """Close the channel with a soft error."""
        if self.state is not _RUNNING:
            return
        self._enter(Event.END_BEGINS)
        method = self.current if error.method is None else error.method
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
        elif run[RUN_KIND] == METHOD and self.state is State.CLOSING:
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
        elif self.state is _RUNNING:
            deliveries = self.deliveries
            self.deliveries = NoDeliveries(self, deliveries.gate)
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
        self.held.clear()
        if self.transaction is not None and is_applying:
            self.transaction.postponed.append(exit_)
        else:
            self.runtime.again(self.ref, exit_)

    def fail_hard(self, error: HardError) -> None:
        """Have the reader close the connection with a hard error."""
        if error.method is None:
            error.method = self.current
        self._enter(Event.HARD_ERROR)
        self.held.clear()
        self.post(self.session.reader, ConnectionFailed(error, self.number))

    def _enter(self, event: Event) -> None:
        self.state = after(self.state, event)

    def terminate(self, reason: object) -> None:
        """Settle what the client has settled, if it crashed; take back its blocks of the connection's reading."""
        self.deliveries.settle_rest_now()
        if self.is_busy and self._script is not None:
            self._script.close()
        self.publisher.close()
        self.held.clear()
        self._unblock_reading()
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
