"""The restarter of the vhosts: a vhost that the machine has taken down is started again, for ever.

A supervisor gives up on a vhost that fails a third time in five minutes, or whose store cannot be opened. That is
right for bugs. A disk that is full or has errors, or descriptors and memory that are used up, get better by
themselves or by an operator, and nobody should have to start the node again for it. So a vhost whose store failed
for such a reason (``StoreState.error``) is started again, at most ``PAUSE_S`` after each failure, whatever the other
vhosts do. Meanwhile its clients are refused, and the other vhosts serve.

One line in the log says that a vhost is down, one per minute that it still is and how often it was tried, and
one that it serves again. A start that takes less than ``SLOW_S`` has none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from leveret.actors.gen_server import GenServer
from leveret.broker.node.node import VHOST_RESTARTER, VHOSTS
from leveret.broker.node.outages import OPENING
from leveret.core.log.loggers import logger
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.broker.node.node import Node
    from leveret.broker.node.outages import Outage
    from leveret.broker.vhost.vhost import VHost

log = logger(__name__)

PAUSE_S: Final = 1.0  # between two looks at the vhosts that are down, each of which is then started
SLOW_S: Final = 5.0  # a start that takes longer is logged as an outage
REMINDER_S: Final = 60.0  # between two lines about a vhost that is still down

STAYS_DOWN: Final = (
    "restart limit reached, see the errors in the log; leveret ctl restart_vhost starts it"
)
_LOOK: Final = "look"


class VhostChanged(Struct, eq=False):
    """To the restarter: a vhost is being started, or its supervisor has ended."""

    vhost: VHost


class VhostRestarter(GenServer):
    """Looks after the vhosts that do not serve, for ever."""

    def init(self, node: Node) -> None:
        self._node = node
        self._has_timer = False
        self.runtime.register(VHOST_RESTARTER, self.ref)
        for vhost in node.vhosts.values():
            if vhost.supervisor is not None and vhost.name not in node.outages.by_vhost:
                self._note(vhost)
        self._look_later()

    def handle_cast(self, message: Any) -> None:
        assert type(message) is VhostChanged
        self._note(message.vhost)
        self._look_later()

    def handle_info(self, message: object) -> None:
        assert message == _LOOK
        self._has_timer = False
        if self._node.connections.is_stopping:
            return
        for name, outage in list(self._node.outages.by_vhost.items()):
            self._look(name, outage)
        self._look_later()

    def _look_later(self) -> None:
        outages = self._node.outages.by_vhost.values()
        if not self._has_timer and any(outage.is_retried for outage in outages):
            self._has_timer = True
            self.start_timer(PAUSE_S, _LOOK)

    def _note(self, vhost: VHost) -> None:
        """Note why a vhost has ended, unless that is on purpose."""
        node, name, error = self._node, vhost.name, vhost.store.error
        is_wanted = node.vhosts.get(name) is vhost and not vhost.is_closing
        if vhost.has_supervisor or not is_wanted or node.connections.is_stopping:
            return
        outage = node.outages.starts(name)
        reason = STAYS_DOWN if error is None else str(error) or type(error).__name__
        outage.is_retried = error is not None
        if outage.is_retried:
            outage.next_try_s = self.runtime.clock.wall_s() + PAUSE_S
        if outage.reason != OPENING:
            outage.tries += 1
        if outage.reason != reason:
            outage.reason = reason
            self._log_down(name, outage)

    def _look(self, name: str, outage: Outage) -> None:
        """Start a vhost that is down; one that has been started serves when it says so."""
        vhost, supervisor = self._node.vhosts.get(name), self.runtime.whereis(VHOSTS)
        if vhost is None:
            self._node.outages.forget(name)
            return
        is_down = not vhost.has_supervisor and not vhost.is_closing
        if is_down and outage.is_retried and supervisor is not None:
            self.call(supervisor, StartChild((vhost,)), lambda _: None, None)
        self._remind(name, outage)

    def _log_down(self, name: str, outage: Outage) -> None:
        outage.is_logged, outage.logged_s = True, self.runtime.clock.monotonic_s()
        again = f"every {PAUSE_S:g} s" if outage.is_retried else "never"
        log.error("vhost is down vhost=%s reason=%s started_again=%s", name, outage.reason, again)

    def _remind(self, name: str, outage: Outage) -> None:
        now_s = self.runtime.clock.monotonic_s()
        quiet_s = now_s - outage.logged_s
        if not outage.is_logged and quiet_s >= SLOW_S:
            self._log_down(name, outage)
        elif outage.is_logged and quiet_s >= REMINDER_S:
            outage.logged_s = now_s
            down_s = self.runtime.clock.wall_s() - outage.since_s
            log.error(
                "vhost is still down vhost=%s reason=%s tries=%d down_s=%d",
                name,
                outage.reason,
                outage.tries,
                down_s,
            )


def vhost_starts(node: Node, vhost: VHost) -> None:
    """Note that a vhost's queues are about to be started, when its store is open."""
    vhost.is_recovered = False
    node.outages.starts(vhost.name)
    _tell_restarter(node, vhost)


def vhost_serves(node: Node, vhost: VHost) -> None:
    """Note that a vhost's queues have been started."""
    node.outages.serves(vhost.name)
    vhost.recovered()


def vhost_ended(node: Node, vhost: VHost) -> None:
    """Note that a vhost's supervisor has ended."""
    vhost.ended()
    _tell_restarter(node, vhost)


def _tell_restarter(node: Node, vhost: VHost) -> None:
    """Tell the restarter of a change; one that is being restarted looks for itself."""
    restarter = node.runtime.whereis(VHOST_RESTARTER)
    if restarter is not None:
        node.runtime.send(restarter, VhostChanged(vhost))
