"""The channel numbers of one connection: which are open, and where their runs go.

A number is in use from channel.open until its actor has ended. Runs that come while the actor is being
started, or between the client's channel.close (or close-ok) and the end of the actor, wait in the
slot's ``stash``, so that a number can be closed and opened again in one read. Runs behind the client's channel.close
are dropped, as RabbitMQ drops them; close-ok frees the number at once, so that a run behind it must be channel.open.

connection.close waits for all that the client has sent before. Each channel gets a run of its own kind
behind its other runs, and answers when it comes to that; a channel that is being started finds it in its stash.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import NORMAL, CallFailed
from leveret.amqp import spec
from leveret.amqp.errors import ChannelError, CommandInvalid, HardError, InternalError, NotAllowed
from leveret.amqp.kernel import ACK, ERROR, HEARTBEAT, METHOD, RUN_CHANNEL, RUN_KIND, Run
from leveret.amqp.methods import decode
from leveret.broker.channel.session import END_OF_RUNS, method_of
from leveret.broker.connection.reading.resume_queue import ResumeQueue
from leveret.broker.connection.states import ConnectionState, State
from leveret.broker.limiter import DeliveryGate
from leveret.broker.mail import PEER_ENDED, RunsLeft
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.channel.methods import Channel
    from leveret.broker.channel.session import Session
    from leveret.broker.connection.connections import Connections
    from leveret.broker.connection.handshake import Opened

_EDGES: Final = frozenset({spec.CHANNEL_OPEN, spec.CHANNEL_CLOSE, spec.CHANNEL_CLOSE_OK})
# Methods with a content that only a broker sends. The frames of that content would be a frame error (the
# kernel awaits none), so the method is refused here before they are looked at.
_ONLY_SENT: Final = spec.CONTENT_METHODS - {spec.BASIC_PUBLISH}
_SPECIAL: Final = _EDGES | _ONLY_SENT
CHANNELS_PER_TURN: Final = 200  # of one connection that get mail in one turn of its reader
FORGOTTEN_AT_ONCE: Final = 1_000  # when the connection has ended
_CHECKED_CONTENTS: Final = 64
HAND_OVER_S: Final = 0.002  # costly methods, one per channel, are long work too


def is_of_connection(run: Run, ids: int) -> bool:
    """Whether a run is this method on channel 0."""
    return run[RUN_KIND] == METHOD and run[RUN_CHANNEL] == 0 and method_of(run) == ids


def _refusal(ids: int) -> HardError:
    if ids == spec.CHANNEL_OPEN:
        return ChannelError("second 'channel.open' seen", ids)
    return CommandInvalid("unimplemented method", ids)


def _open_was_due(ids: int) -> HardError:
    return ChannelError("expected 'channel.open'", ids)


def _opens(run: Run) -> bool:
    return run[RUN_KIND] == METHOD and method_of(run) == spec.CHANNEL_OPEN


def _behind_close(stash: list[Run]) -> list[Run]:
    """Drop the runs between the client's channel.close and the next channel.open, or a close-ok with it."""
    for position, run in enumerate(stash):
        if _opens(run):
            return stash[position:]
        if run[RUN_KIND] == METHOD and method_of(run) == spec.CHANNEL_CLOSE_OK:
            return stash[position + 1 :]
    return []


class _Slot:
    """A channel number in use.

    Attributes:
        ref: its actor; None until the supervisor has started it.
        gate: what its consumers' queues look at.
        stash: runs to handle when the channel has started, or has ended; None in between.
        is_free: the client has said close-ok, so that only channel.open may follow.
    """

    __slots__ = ("gate", "is_free", "ref", "stash")

    def __init__(self, stash: list[Run], resume_queue: ResumeQueue) -> None:
        self.ref: Ref | None = None
        self.gate = DeliveryGate(resume_queue)
        self.stash: list[Run] | None = stash
        self.is_free = False

    @property
    def must_open(self) -> bool:
        """Whether the next run must be channel.open."""
        return self.is_free and not self.stash


class _Reader(Protocol):
    """The reader, as its channel table uses it."""

    connections: Connections[Any]
    state: ConnectionState
    opened: Opened | None
    session: Session | None
    channels_sup: Ref | None
    peer_has_ended: bool

    @property
    def ref(self) -> Ref: ...

    @property
    def runtime(self) -> Runtime: ...

    def own_run(self, run: Run) -> None: ...
    def client_closes(self) -> None: ...
    def fail(self, error: HardError) -> None: ...
    def monitor(self, ref: Ref) -> object: ...
    def post(self, to: Ref, message: object) -> object: ...
    def call(
        self, to: Ref, request: object, then: Callable[[Any], None], timeout_s: float | None
    ) -> object: ...


class ChannelTable:
    """The channels of one connection, for its reader.

    Attributes:
        is_closing: the client has sent connection.close; the channels handle what it had sent before.
        writing_is_paused: the peer has enough to read.
    """

    __slots__ = ("_numbers", "_reader", "_resume_queue", "_slots", "_state", "_turns", "_unhandled", "is_closing",
        "writing_is_paused")  # fmt: skip

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._state = reader.state
        self._turns = reader.runtime.turns
        self._slots: dict[int, _Slot] = {}
        self._resume_queue = ResumeQueue(reader.runtime, self)
        self._numbers: dict[Ref, int] = {}  # of the actors
        self.is_closing = False
        self.writing_is_paused = False
        self._unhandled: set[int] = set()  # channels that have not come to the close yet

    def __len__(self) -> int:
        return len(self._slots)

    def running(self) -> list[Channel]:
        """Return the channels whose actors run."""
        refs = [slot.ref for slot in self._slots.values()]
        return [ref.cell.actor for ref in refs if ref is not None and ref.is_alive]

    def hand_over_one(self, runs: list[Run]) -> bool:
        """Give a running channel a read's only run, if it is messages or acks; return whether."""
        run = runs[0]
        if run[RUN_KIND] > ACK:
            return False
        slot = self._slots.get(run[RUN_CHANNEL])
        if slot is None or slot.stash is not None or slot.ref is None:
            return False
        self._turns.send_now(slot.ref, runs)
        return True

    def hand_over_all(self, runs: list[Run]) -> list[Run]:
        """Give the channels their runs, one mail per channel and stretch, and the reader its own.

        Returns the runs left after so many mails, or so much time, that other actors should have their turn.
        """
        number, left = 0, CHANNELS_PER_TURN
        until_s = None
        batch: list[Run] = []
        for position, run in enumerate(runs):
            kind = run[RUN_KIND]
            if kind == HEARTBEAT:
                continue
            if kind == ERROR or run[RUN_CHANNEL] == 0:
                self.hand_over(number, batch)
                number, batch = 0, []
                self._reader.own_run(run)
            elif run[RUN_CHANNEL] == number:
                batch.append(run)
            else:
                self.hand_over(number, batch)
                if not left:
                    return runs[position:]
                left -= 1
                if left & 1:  # a look at the clock for two channels
                    now_s = self._reader.runtime.clock.monotonic_s()
                    if until_s is None:
                        until_s = now_s + HAND_OVER_S
                    elif now_s >= until_s:
                        return runs[position:]
                number, batch = run[RUN_CHANNEL], [run]
        self.hand_over(number, batch)
        return []

    def hand_over(self, number: int, batch: list[Run]) -> None:
        """Give a channel runs that were read; those behind a connection.close do not count."""
        if not self.is_closing or (batch and batch[0][RUN_KIND] == END_OF_RUNS):
            self._hand_over(number, batch)

    def _hand_over(self, number: int, batch: list[Run]) -> None:
        if not batch or self._state.now is not State.RUNNING:
            return
        slot = self._slots.get(number)
        if slot is None:
            if batch[0][RUN_KIND] != END_OF_RUNS:  # of a channel that has ended meanwhile
                self._open(number, batch)
            return
        if slot.stash is not None:
            self._keep(slot, slot.stash, batch)
            return
        assert slot.ref is not None
        for position, run in enumerate(batch):
            if run[RUN_KIND] != METHOD:
                continue
            _, _, ids, _ = run
            if ids not in _SPECIAL:
                continue
            if ids == spec.CHANNEL_OPEN or ids in _ONLY_SENT:
                self._turns.send_now(slot.ref, batch[:position])
                self._reader.fail(_refusal(ids))
                return
            slot.stash = []
            slot.is_free = ids == spec.CHANNEL_CLOSE_OK
            self._turns.send_now(slot.ref, batch[: position + 1])
            self._keep(slot, slot.stash, batch[position + 1 :])
            return
        self._turns.send_now(slot.ref, batch)

    def _keep(self, slot: _Slot, stash: list[Run], batch: list[Run]) -> None:
        """Keep runs until the channel has started, or has ended."""
        if slot.must_open and batch and not _opens(batch[0]) and batch[0][RUN_KIND] != END_OF_RUNS:
            self._reader.fail(_open_was_due(method_of(batch[0])))
        stash += batch

    def _open(self, number: int, batch: list[Run]) -> None:
        """Have the channel started that the first run opens."""
        reader, run = self._reader, batch[0]
        if reader.connections.is_stopping:
            return  # the channel has ended before its reader
        ids = method_of(run)
        if ids != spec.CHANNEL_OPEN:
            reader.fail(_open_was_due(ids))
            return
        _, _, _, arguments = run
        try:
            decode(ids, arguments)
            self._check_limits()
        except HardError as error:
            reader.fail(error)
            return
        slot = self._slots[number] = _Slot(batch[1:], self._resume_queue)
        slot.gate.is_open = self._resume_queue.is_open
        assert reader.opened is not None
        start = partial(self._start, number, slot)
        reader.connections.channel_opened(reader.opened.user, reader.ref, start)

    def _start(self, number: int, slot: _Slot) -> None:
        reader = self._reader
        if reader.channels_sup is None:
            return  # the connection has ended while other nodes were told of the channel

        def started(answer: Any) -> None:
            self._started(number, slot, answer)

        request = StartChild((reader.session, number, slot.gate))
        reader.call(reader.channels_sup, request, started, None)

    def check_contents(self, numbers: Sequence[int]) -> None:
        """Refuse a content that comes for a channel that is not open, without waiting for the rest of it.

        It looks at the newest ones: contents may be under way on all channels, and come a frame at a time.
        """
        for number in numbers[-_CHECKED_CONTENTS:]:
            slot = self._slots.get(number)
            if (slot is None or slot.must_open) and not self._reader.connections.is_stopping:
                self._reader.fail(_open_was_due(spec.BASIC_PUBLISH))

    def _check_limits(self) -> None:
        reader = self._reader
        assert reader.opened is not None
        limit = reader.opened.channel_max
        if limit and len(self._slots) >= limit:
            raise NotAllowed(
                f"number of channels opened ({limit}) has reached the negotiated channel_max"
                f" ({limit})",
                0,
            )
        own_limit = reader.connections.settings.connection_channels_max
        if own_limit and len(self._slots) >= own_limit:
            raise NotAllowed(
                f"number of channels opened ({own_limit}) has reached the maximum allowed"
                f" limit of ({own_limit})",
                0,
            )
        reader.connections.check_channel_limit(reader.opened.user)

    def _started(self, number: int, slot: _Slot, answer: Any) -> None:
        if isinstance(answer, CallFailed) or answer[0] != "ok":
            self._reader.fail(InternalError(method=spec.CHANNEL_OPEN))
            return
        slot.ref = slot.gate.channel = answer[1]
        self._numbers[answer[1]] = number
        self._reader.monitor(answer[1])
        if self._reader.peer_has_ended:
            self._reader.post(answer[1], PEER_ENDED)
        self._replay(number, slot)

    def _replay(self, number: int, slot: _Slot) -> None:
        stash, slot.stash = slot.stash, None
        self._hand_over(number, stash or [])

    def close(self) -> None:
        """Tell the reader when the channels have handled all runs, also those in a stash; take no more."""
        self.is_closing = True
        self._unhandled.update(self._slots)
        # Behind all runs that came before connection.close; a channel answers with ``AllHandled``.
        rest = self.hand_over_all([(END_OF_RUNS, number) for number in self._slots])
        if rest:
            self._turns.again(self._reader.ref, RunsLeft(rest))
        self._close_if_handled()

    def handled_all(self, number: int) -> None:
        """A channel has come to the client's connection.close."""
        self._unhandled.discard(number)
        self._close_if_handled()

    def _close_if_handled(self) -> None:
        if self.is_closing and not self._unhandled and self._state.now is State.RUNNING:
            self._reader.client_closes()

    def stays(self, number: int) -> None:
        """A channel that was told to close goes on (it waits for close-ok)."""
        slot = self._slots.get(number)
        if slot is not None and slot.stash is not None:
            self._replay(number, slot)

    def down(self, ref: Ref, reason: object) -> None:
        """A channel ended: its number is free; an odd end takes the connection along."""
        number = self._numbers.pop(ref, None)
        if number is None:
            return
        slot = self._slots.pop(number)
        self._resume_queue.leave(slot.gate)
        if self._reader.opened is not None:
            self._reader.connections.channel_closed(self._reader.opened.user)
        if self._reader.connections.is_stopping:
            return  # the reader is next
        stash = slot.stash or []
        left = stash if slot.is_free else _behind_close(stash)
        if reason != NORMAL:
            self._reader.fail(InternalError(method=0))
        elif left and left[0][RUN_KIND] != END_OF_RUNS:
            self._hand_over(number, left)
        else:
            self.handled_all(number)

    def peer_ended(self) -> None:
        """Nobody takes deliveries any more; what the client has sent goes on. ``_started`` tells later channels."""
        self.pause_writing()
        for slot in self._slots.values():
            if slot.ref is not None:
                self._reader.post(slot.ref, PEER_ENDED)

    def connection_ended(self) -> None:
        """Nothing is left to resume, whenever the channels end; a part of many is forgotten after each round."""
        self._resume_queue.connection_ended()
        for _ in range(min(len(self._slots), FORGOTTEN_AT_ONCE)):
            self._resume_queue.leave(self._slots.popitem()[1].gate)
        if self._slots:
            self._reader.runtime.after_round(self.connection_ended)

    def pause_writing(self) -> None:
        """The peer has enough to read: queues deliver nothing more to it."""
        self.writing_is_paused = True
        self.close_gates()

    def resume_writing(self) -> None:
        self.writing_is_paused = False
        self.open_gates()

    def close_gates(self) -> None:
        """The connection takes no more: queues stop delivering."""
        self._resume_queue.close()
        for slot in self._slots.values():
            slot.gate.is_open = False

    def open_gates(self) -> None:
        """The connection takes more, if nothing else holds it up: the queues that waited go on, and so do channels.

        The gate of a channel that ends stays closed, but its last method may wait for this.
        """
        if self._resume_queue.is_overfull or self.writing_is_paused:
            return
        for slot in self._slots.values():
            is_ending = slot.gate.is_closed or (slot.ref is not None and slot.stash is not None)
            slot.gate.is_open = not is_ending
        self._resume_queue.open()
