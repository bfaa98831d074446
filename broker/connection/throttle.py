"""The throttle of one connection: stops it when it publishes while an alarm is raised.

A connection is *blocked* from the first content on whose header has come; what was read behind it is held
and nothing more is read, so no method behind a publish is answered either. It is told with
connection.blocked, once, if it said that it understands that. Source: ``rabbit_reader``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.kernel import OVERSIZE, PUBLISH, Run
from leveret.amqp.methods import ConnectionBlocked, ConnectionUnblocked
from leveret.broker.connection.channel_table import RunsLeft
from leveret.core.message import BODY

if TYPE_CHECKING:
    from leveret.amqp.fields import Method
    from leveret.broker.connection.reader import Reader

_PUBLISHES: Final = (PUBLISH, OVERSIZE)


class Throttle:
    """What alarms do to a connection; its reader asks when it has read something.

    Attributes:
        alarms: the node's.
        is_blocked: it has published since an alarm was raised.
    """

    __slots__ = ("_held", "_reader", "alarms", "is_blocked")

    def __init__(self, reader: Reader) -> None:
        self.alarms = reader.connections.alarms
        self.is_blocked = False
        self._reader = reader
        self._held: list[Run] = []

    def until_publish(self, runs: list[Run]) -> list[Run]:
        """Block the connection if it publishes; return the runs that are to be handled now.

        A message without a body is complete with its header, so it still passes.
        """
        if self.is_blocked:  # these had been read when reading was paused
            self._held += runs
            return []
        for position, run in enumerate(runs):
            if run[0] in _PUBLISHES:
                passing, held = _first_without_body(run)
                self._block(held + runs[position + 1 :])
                return runs[:position] + passing
        if self._reader.scanner.pending:
            self._block([])
        return runs

    def _block(self, held: list[Run]) -> None:
        reader = self._reader
        self.is_blocked = True
        self._held = held
        reader.read_control.block()
        self.alarms.block(reader.ref)
        self._tell(ConnectionBlocked(self.alarms.reason))

    def over(self) -> None:
        """Go on: no alarm is raised any more."""
        reader = self._reader
        if not self.is_blocked or reader.state != "running":
            return
        self.is_blocked = False
        self._tell(ConnectionUnblocked())
        held, self._held = self._held, []
        reader.runtime.again(reader.ref, RunsLeft(held))  # takes the block back, too

    def _tell(self, method: Method) -> None:
        opened = self._reader.opened
        if opened is not None and opened.blocked_notify:
            self._reader.send_method(method)

    def forget(self) -> None:
        """The connection has ended."""
        self.alarms.forget(self._reader.ref)
        self._held = []


def _first_without_body(run: Run) -> tuple[list[Run], list[Run]]:
    """Part a run of publishes behind its first message, if that has no body."""
    if run[0] == OVERSIZE or run[4][0][BODY]:
        return [], [run]
    first, rest = (*run[:4], run[4][:1]), (*run[:4], run[4][1:])
    return [first], [rest] if rest[4] else []
