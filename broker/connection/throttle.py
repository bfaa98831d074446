"""The throttle of one connection: holds back its publishes while an alarm is raised.

A connection is *blocked* from the first content on whose header has come; the runs behind it are held and
nothing more is read, so no method behind a publish is answered either. It is told with connection.blocked,
once, if it said that it understands that. Source: ``rabbit_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from leveret.amqp.kernel import OVERSIZE, PUBLISH, Run
from leveret.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from leveret.core.message import BODY

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.amqp.fields import Method
    from leveret.broker.connection.alarms import Alarms

_PUBLISHES: Final = (PUBLISH, OVERSIZE)


class Throttle:
    """The effect of alarms on one connection.

    Attributes:
        is_blocked: the connection has published since an alarm was raised.
        reader: of the connection.
    """

    __slots__ = ("_held", "_tell", "alarms", "is_blocked", "reader")

    def __init__(self, alarms: Alarms, reader: Ref, tell: Callable[[Method], None]) -> None:
        self.alarms = alarms
        self.is_blocked = False
        self.reader = reader
        self._tell = tell
        self._held: Sequence[Run] = ()  # shared: most connections hold none

    def until_publish(self, runs: list[Run], is_publish_pending: bool) -> list[Run]:
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
        if is_publish_pending:
            self._block([])
        return runs

    def _block(self, held: list[Run]) -> None:
        self.is_blocked = True
        self._held = held
        self.alarms.block(self.reader)
        self._tell(ConnectionBlocked(self.alarms.reason))

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

    def close(self) -> None:
        self.alarms.forget(self.reader)
        self._held = ()


def _first_without_body(run: Run) -> tuple[list[Run], list[Run]]:
    """Part a run of publishes behind its first message, if that has no body."""
    if run[0] == OVERSIZE or run[4][0][BODY]:
        return [], [run]
    first, rest = (*run[:4], run[4][:1]), (*run[:4], run[4][1:])
    return [first], [rest] if rest[4] else []
