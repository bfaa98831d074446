"""The throttle of one connection: holds back its publishes while an alarm is raised.

A connection is *blocked* from the first content on whose header has come; the runs behind it are held and
nothing more is read, so no method behind a publish is answered either. It is told with connection.blocked,
once, if it said that it understands that. Source: ``rabbit_reader``.

Definitions and consumers take memory as messages do. A consumer must be able to come and to drain queues while memory
is short, so its methods pass; but a connection is blocked as well when, while the memory alarm is raised, it sends a
method with large arguments, or thousands of methods that make queues, exchanges, bindings or consumers. The count of
these leaks away with time, for most of what is made in a loop is deleted or cancelled in it, or was there already.
Passive declares make nothing, and channels are bounded by what was negotiated, so neither is counted. Differs from
RabbitMQ, which lets all of them pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from leveret.amqp import spec
from leveret.amqp.kernel import METHOD, OVERSIZE, PUBLISH, Run
from leveret.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from leveret.broker.connection.alarms import MEMORY
from leveret.core.limits import (
    ALARMED_ARGUMENTS_BYTES_MAX,
    ALARMED_DEFINITIONS_MAX,
    ALARMED_DEFINITIONS_PER_S,
)
from leveret.core.message import BODY

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.fields import Method
    from leveret.broker.connection.alarms import Alarms

_PUBLISHES: Final = (PUBLISH, OVERSIZE)
_REMEMBERED: Final = frozenset(
    {
        spec.EXCHANGE_DECLARE,
        spec.EXCHANGE_BIND,
        spec.QUEUE_DECLARE,
        spec.QUEUE_BIND,
        spec.BASIC_CONSUME,
    }
)
# Declarations with ``passive`` as their first bit: the number of names between it and the ticket.
_NAMES_BEFORE_PASSIVE: Final = {spec.EXCHANGE_DECLARE: 2, spec.QUEUE_DECLARE: 1}


class Throttle:
    """The effect of alarms on one connection.

    Attributes:
        is_blocked: the connection has published since an alarm was raised, or made too much.
    """

    __slots__ = ("_alarms", "_held", "_reader", "_remembered", "_tell", "is_blocked")

    def __init__(self, alarms: Alarms, reader: Ref, tell: Callable[[Method], None]) -> None:
        self._alarms = alarms
        self.is_blocked = False
        self._reader = reader
        self._tell = tell
        self._held: Sequence[Run] = ()  # shared: most connections hold none
        self._remembered = (0, 0.0, 0.0)  # which alarm, how many methods at that time

    def passing(self, runs: list[Run], is_publish_pending: bool) -> list[Run]:
        """Return the runs that are handled now; hold the others, from the first publish on.

        A message without a body is complete with its header, so it still passes.
        """
        if self.is_blocked:  # these had been read when reading was paused
            self._held = [*self._held, *runs]
            return []
        for position, run in enumerate(runs):
            if run[0] in _PUBLISHES:
                passing, held = _first_without_body(run)
                self._block(held + runs[position + 1 :])
                return runs[:position] + passing
            if run[0] == METHOD and run[1] and self._takes_memory(run):
                self._block(runs[position:])
                return runs[:position]
        if is_publish_pending:
            self._block([])
        return runs

    def _takes_memory(self, run: Run) -> bool:
        """Return whether a method has to wait until memory is not short any more."""
        alarms = self._alarms
        if MEMORY not in alarms.raised or run[2] not in _REMEMBERED or _is_passive(run):
            return False
        if len(run[3]) > ALARMED_ARGUMENTS_BYTES_MAX:
            return True
        alarm, count, at_s = self._remembered
        now_s = alarms.now_s
        forgotten = ALARMED_DEFINITIONS_PER_S * (now_s - at_s)
        count = max(0.0, count - forgotten) + 1 if alarm == alarms.times else 1.0
        self._remembered = (alarms.times, count, now_s)
        return count > ALARMED_DEFINITIONS_MAX

    def _block(self, held: list[Run]) -> None:
        self.is_blocked = True
        self._held = held
        self._alarms.block(self._reader)
        self._tell(ConnectionBlocked(self._alarms.reason))

    def over(self) -> list[Run]:
        """Return the runs that were held: no alarm is raised any more."""
        self.is_blocked = False
        self._tell(ConnectionUnblocked())
        held, self._held = self._held, ()
        return list(held)

    @property
    def held_bytes(self) -> int:
        """The bodies of the messages that are held."""
        return sum(
            len(message[BODY]) for run in self._held if run[0] == PUBLISH for message in run[4]
        )

    def drop_held(self) -> None:
        """Drop the runs that are held: their connection is about to be closed."""
        self._held = ()

    def close(self) -> None:
        self._alarms.forget(self._reader)
        self.drop_held()


def _is_passive(run: Run) -> bool:
    """Return whether a method only asks whether something exists; one that is cut short is refused later."""
    names, arguments = _NAMES_BEFORE_PASSIVE.get(run[2]), run[3]
    if names is None:
        return False
    position = 2
    for _ in range(names):
        if position < len(arguments):
            position += 1 + arguments[position]
    return position < len(arguments) and bool(arguments[position] & 1)


def _first_without_body(run: Run) -> tuple[list[Run], list[Run]]:
    """Part a run of publishes behind its first message, if that has no body."""
    if run[0] == OVERSIZE or run[4][0][BODY]:
        return [], [run]
    first, rest = (*run[:4], run[4][:1]), (*run[:4], run[4][1:])
    return [first], [rest] if rest[4] else []
