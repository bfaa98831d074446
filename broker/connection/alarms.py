"""Alarms: memory or disk run short, so connections that publish are not read any more.

A connection is *blocked* when it publishes while an alarm is raised: it gets ``connection.blocked`` (if its
client understands that), and its publish and all that the client sends after it wait unread or unrouted. Until then
it is *blocking*: a connection that only consumes stays so, and its acks are read. All are read again when the last
alarm is cleared. Source: ``rabbit_alarm``, ``rabbit_reader``.

A plain object of the node. The watches (``memory_watch``, ``disk_watch``) raise and clear; readers check
``raised`` after each read. Large reads are counted, since clients may send more between two checks of the memory
watch than there is room for: the watch says how much may be read before its next check. Smaller reads keep the broker
so busy that the watch's timer is early enough.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Final

from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime

log = logger(__name__)

MEMORY: Final = "memory"
DISK: Final = "disk"

COUNTED_READ_BYTES: Final = 4_096


class AlarmsOver:
    """To a blocked reader: the last alarm is over."""


_OVER: Final = AlarmsOver()


class Alarms:
    """The alarms of a node, and the connections that are blocked.

    Attributes:
        own: ``MEMORY``, ``DISK``, both or, mostly, none; sorted.
        raised: the same with those of the other nodes of the cluster: an alarm on any node blocks all publishers.
        remote: the alarms of other nodes, by node.
        on_change: called when ``own`` has changed, to tell the other nodes.
        times: how often an alarm was raised.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.own: tuple[str, ...] = ()
        self.raised: tuple[str, ...] = ()
        self.on_change: Callable[[], None] | None = None
        self.remote: dict[str, tuple[str, ...]] = {}
        self.times = 0
        self._runtime = runtime
        self._blocked: dict[Ref, None] = {}  # in the order in which they were
        self._room_bytes = math.inf
        self._check: Callable[[], None] | None = None

    @property
    def reason(self) -> str:
        """RabbitMQ's text of connection.blocked."""
        return "low on " + " & ".join(self.raised)

    @property
    def now_s(self) -> float:
        """The clock that the throttles of connections count by."""
        return self._runtime.clock.monotonic_s()

    @property
    def has_disk(self) -> bool:
        return DISK in self.own

    def set(self, what: str, is_raised: bool, stats: str) -> None:
        """Raise or clear an alarm; do nothing if that does not change it."""
        if (what in self.own) == is_raised:
            return
        if is_raised:
            self.times += 1
            self.own = tuple(sorted((*self.own, what)))
            log.warning("alarm raised, publishers are blocked resource=%s %s", what, stats)
        else:
            self.own = tuple(each for each in self.own if each != what)
            log.warning("alarm cleared resource=%s %s", what, stats)
        if self.on_change is not None:
            self.on_change()
        self._add_up()

    def set_remote(self, node: str, alarms: tuple[str, ...]) -> None:
        """Note the alarms of another node; a node that is not linked has none."""
        before = self.remote.pop(node, ())
        if alarms:
            self.remote[node] = alarms
        if alarms != before:
            log.warning("alarms of another node node=%s resources=%s", node, ",".join(alarms))
            self._add_up()

    def _add_up(self) -> None:
        self.raised = tuple(sorted({*self.own, *chain(*self.remote.values())}))
        if not self.raised:
            blocked, self._blocked = self._blocked, {}
            for reader in blocked:
                self._runtime.send(reader, _OVER)

    def check_after(self, size_bytes: float, check: Callable[[], None]) -> None:
        """Call ``check``, once, when reads of ``COUNTED_READ_BYTES`` and more have brought so many bytes."""
        self._room_bytes, self._check = size_bytes, check

    def read(self, size_bytes: int) -> None:
        """Count a read."""
        self._room_bytes -= size_bytes
        if self._room_bytes < 0 and self._check is not None:
            self._room_bytes = math.inf
            self._check()

    def block(self, reader: Ref) -> None:
        """Tell a reader when all alarms are over."""
        self._blocked[reader] = None

    def forget(self, reader: Ref) -> None:
        self._blocked.pop(reader, None)
