"""The traffic of a channel: its client's runs, in order, and what queues send it for messages.

The reader hands a channel its runs (a list, for each read of the socket). A channel is strictly sequential towards
its client: while a method waits for an answer (a script runs), or a turn has done enough, the runs behind it are held,
and the connection stops reading if there are any. Deliveries, confirms and credit go on.

The runtime gives all mail of the channel's actor to this plain object. The actor (``channel.py``) handles what an
ordinary message does not need: other mails, the scripts of methods, monitors, and the end.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.actors.runtime.ref import MailHandler
from leveret.amqp.errors import HardError, PreconditionFailed, SoftError
from leveret.amqp.kernel import ACK, METHOD, OVERSIZE, PUBLISH, RUN_KIND, Run
from leveret.amqp.methods import decode
from leveret.amqp.spec import BASIC_PUBLISH, CHANNEL_CLOSE
from leveret.broker.channel import methods
from leveret.broker.channel.consuming.deliveries import Deliveries
from leveret.broker.channel.publishing.publish import METHOD_WORK, Publisher
from leveret.broker.channel.routes import WORK_S
from leveret.broker.channel.session import END_OF_RUNS, REFUSED, Block, method_of
from leveret.broker.channel.states import State
from leveret.broker.mail import Confirm, CreditGrant, Deliver
from leveret.broker.vhost.auth.auth_backends import Question
from leveret.core.limits import PUBLISH_TURN_WORK

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.channel.transaction import Transaction
    from leveret.broker.script import Steps

_RUNNING: Final = State.RUNNING
_FIRST_TURN_WORK: Final = PUBLISH_TURN_WORK // 4  # sockets with bytes are read one after the other
# Classes whose methods cost as much as 100 messages: bulk turns begin them, so thousands do not fill the run queue.
_TOPOLOGY: Final = frozenset({40, 50})  # exchange and queue
_HELD_STEP: Final = 64  # held runs that are taken up at once


class _Continue:
    """To the channel itself: handle the runs that a turn's budget cut short."""


_CONTINUE: Final = _Continue()


class Channel(methods.Channel, Protocol):
    """The channel's actor, as its traffic uses it."""

    def handle_mail(self, message: Any, sender: Ref | None) -> object: ...

    def run_method(self, steps: Steps, run: Run) -> None: ...

    def tell_postponed(self) -> None: ...

    def refuse_during_commit(self) -> None: ...

    def fail(self, error: SoftError) -> None: ...

    def fail_hard(self, error: HardError) -> None: ...

    def client_closes(self) -> None: ...

    def run_at_end(self, run: Run) -> None: ...


class Traffic(MailHandler):
    """What a channel's client sends, and what its queues send for messages.

    Attributes:
        deliveries: the channel's.
        transaction: likewise; it takes the client's settlements. None: the deliveries do.
        state: the channel's; says what becomes of its client's runs.
        current: the ids of the method that is handled, for its error.
        is_busy: a method waits, or work is left for a later turn.
        held: runs that wait for the end of that.
    """

    __slots__ = (
        "_asking",
        "_blocks_reading",
        "_channel",
        "_is_bulk_turn",
        "_is_resuming",
        "_publisher",
        "_session",
        "current",
        "deliveries",
        "held",
        "is_busy",
        "state",
        "transaction",
    )

    def __init__(self, channel: Channel, publisher: Publisher, deliveries: Deliveries) -> None:
        self._channel = channel
        self._session = channel.session
        self._publisher = publisher
        self._asking: Run | None = None  # until a back end has answered
        self._blocks_reading = False
        self._is_bulk_turn = False
        self._is_resuming = False
        self.current = 0
        self.deliveries = deliveries
        self.transaction: Transaction | None = None
        self.held: deque[Run] = deque()
        self.is_busy = False
        self.state = State.RUNNING

    def handle(self, message: Any, sender: Ref | None) -> object:
        """Handle a mail of the channel's actor."""
        kind = type(message)
        if kind is list:
            session, publisher = self._session, self._publisher
            chain = session.interceptors
            runs: list[Run] = message if chain is None else chain.published(session, message)
            if self.is_busy:  # a method waits: they are held
                self.held.extend(runs)
                self._block_reading()
                self._channel.refuse_during_commit()
                return None
            publisher.work_left = _FIRST_TURN_WORK
            publisher.is_long_work = False
            self._handle(runs)
            if publisher.confirms is not None:
                publisher.send_confirms()
        elif kind is Deliver:
            delivery: Deliver = message
            self.deliveries.deliver(delivery)
            if delivery.waiting_bytes:
                self.deliveries.gate.delivery_written(delivery.waiting_bytes)
        elif kind is Confirm:
            confirm: Confirm = message
            confirms = self._publisher.confirms
            if confirms is not None:
                confirms.answer(confirm.queue, confirm.ranges, confirm.ok)
                self._publisher.send_confirms()
        elif kind is CreditGrant:
            self._granted(message)
        elif kind is _Continue:
            self._next_turn()
        else:
            return self._channel.handle_mail(message, sender)
        return None

    def _granted(self, mail: CreditGrant) -> None:
        publisher = self._publisher
        publisher.credit.granted(mail.queue, mail.messages, mail.size_bytes)
        if mail.is_last and publisher.forget_idle(mail.queue):
            self._channel.unwatch(mail.queue)

    # -- runs, in order ------------------------------------------------------------------------

    def _handle(self, runs: list[Run]) -> None:
        """Handle runs, in order; hold the rest when a method waits or the turn has done enough."""
        publisher = self._publisher
        for position, run in enumerate(runs):
            kind: int = run[RUN_KIND]
            rest = None
            try:
                if kind == PUBLISH and self.state is _RUNNING:
                    self.current = BASIC_PUBLISH
                    rest = publisher.publish(run)
                    if rest is None and publisher.work_left > 0:
                        continue
                elif (
                    kind == METHOD and method_of(run) >> 16 in _TOPOLOGY and not self._is_bulk_turn
                ):
                    self.held.extendleft(reversed(runs[position:]))
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
                self.failed(problem, run)
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
            self._channel.run_at_end(run)
        elif kind == METHOD:
            self._method(run)
        elif kind == OVERSIZE:
            self.current = BASIC_PUBLISH
            _, _, _, size_bytes = run
            limit = self._session.settings.message_bytes_max
            raise PreconditionFailed(
                f"message size {size_bytes} is larger than configured max size {limit}"
            )
        elif kind == REFUSED:
            self.current = BASIC_PUBLISH
            _, _, error = run
            raise error

    def _method(self, run: Run) -> None:
        channel, publisher = self._channel, self._publisher
        ids: int
        arguments: bytes
        _, _, ids, arguments = run
        self.current = ids
        publisher.work_left -= len(arguments)  # decoded, encoded and compared several times
        method = decode(ids, arguments)
        if ids == CHANNEL_CLOSE:
            channel.client_closes()
            return
        handler = methods.HANDLERS.get(ids)
        if handler is None:
            raise methods.unimplemented()
        clock = channel.runtime.clock
        since_s = clock.monotonic_s()
        steps = handler(channel, method)
        if steps is not None:
            channel.run_method(steps, run)
        # A method with short arguments may remove or search much: it is charged by its time, too.
        publisher.work_left -= int((clock.monotonic_s() - since_s) / WORK_S)

    def failed(self, problem: Exception, run: Run) -> None:
        """Close the channel or the connection, or have a back end answer and handle the run again."""
        if isinstance(problem, SoftError):
            self._channel.fail(problem)
        elif isinstance(problem, HardError):
            self._channel.fail_hard(problem)
        elif isinstance(problem, Question):
            self._wait_for(problem, run)
        else:
            raise problem

    def _wait_for(self, question: Question, run: Run) -> None:
        """Handle a run again when a back end has answered; nothing of it has been done."""
        channel = self._channel
        self.is_busy = True
        self._asking = run
        question.when_answered(partial(channel.runtime.run_as, channel.ref, self._answered))

    def _answered(self) -> None:
        run, self._asking = self._asking, None
        if run is not None:
            self.held.appendleft(run)
            self._next_turn()

    # -- held runs -----------------------------------------------------------------------------

    def _hold(self, runs: list[Run]) -> None:
        self.held.extendleft(reversed(runs))
        self._block_reading()
        self._channel.refuse_during_commit()

    def _continue_later(self, runs: list[Run]) -> None:
        """Leave runs, or a fan-out, to a later turn, so that others get theirs; nothing more is read before."""
        self._hold(runs)
        self._yield()

    def _yield(self) -> None:
        self.is_busy = True
        self._channel.runtime.again(self._channel.ref, _CONTINUE)

    def _next_turn(self) -> None:
        self.is_busy = False
        self._channel.tell_postponed()
        self._publisher.work_left = PUBLISH_TURN_WORK
        self._is_bulk_turn = True
        self.resume()
        self._is_bulk_turn = False

    def resume(self) -> None:
        """Continue a fan-out, then handle held runs, until a method waits again or the turn has done enough.

        A method that does not wait ends inside of it, and the runs behind it stay in order.
        """
        held, publisher = self.held, self._publisher
        if self._is_resuming:
            return
        if not self.is_busy and (held or publisher.fan_out is not None):
            if publisher.work_left <= 0:
                self._continue_later([])
            else:
                self._is_resuming = True
                publisher.is_long_work = True
                publisher.continue_fan_out()
                if publisher.fan_out is not None or (held and publisher.work_left <= 0):
                    self._continue_later([])
                while held and not self.is_busy:
                    self._handle([held.popleft() for _ in range(min(len(held), _HELD_STEP))])
                self._is_resuming = False
                publisher.send_confirms()
        self._unblock_reading()

    def _block_reading(self) -> None:
        if not self._blocks_reading and (self.held or self._publisher.fan_out is not None):
            self._blocks_reading = True
            self._session.read_control.block(Block.HELD_RUNS)

    def _unblock_reading(self) -> None:
        if self._blocks_reading and not self.held and self._publisher.fan_out is None:
            self._blocks_reading = False
            self._session.read_control.unblock(Block.HELD_RUNS)

    def close(self) -> None:
        """Drop the held runs at the channel's end, and let the connection read again."""
        self.held.clear()
        self._unblock_reading()
