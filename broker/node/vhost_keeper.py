"""The keeper of the vhosts: a vhost that the machine has taken down is started again, for ever.

A supervisor gives up on a vhost that fails a third time in five minutes, or does not start. That is right for
bugs. A disk that is full or has errors, or descriptors and memory that are used up, get better by
themselves or by an operator, and nobody should have to start the node again for it. So a vhost whose
store failed for such a reason (``VHost.store_error``) is started again ``PAUSE_S`` after each failure.
Meanwhile its clients are refused, and the other vhosts serve.

Vhosts that are down are started one after another, for their supervisor starts one child at a time and takes no
other request meanwhile. So ``PAUSE_S`` holds for starts that fail or end at once: a vhost behind one that recovers for
minutes, or whose disk hangs, waits until that start is over.

One line in the log says that a vhost is down, one per minute that it still is and how often it was tried, and
one that it serves again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from leveret.actors.gen_server import GenServer
from leveret.broker.node.node import VHOST_KEEPER, VHOSTS
from leveret.broker.node.outages import Outage
from leveret.broker.script import Ask, Script, Steps
from leveret.core.log import logger
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.broker.node.node import Node
    from leveret.broker.vhost.vhost import VHost

log = logger(__name__)

PAUSE_S: Final = 1.0  # between two starts of a vhost, if no other vhost's start takes longer
REMINDER_S: Final = 60.0  # between two lines about a vhost that is still down

_LOOK: Final = "look"
_STAYS_DOWN: Final = "it failed too often, or did not start; the log has the errors"


class VhostEnded(Struct, eq=False):
    """To the keeper: the supervisor of a vhost has ended."""

    vhost: VHost


class VhostKeeper(GenServer):
    """Notes outages of vhosts and ends them, for ever."""

    def init(self, node: Node) -> None:
        self._node = node
        self._is_trying = self._has_timer = False
        self.runtime.register(VHOST_KEEPER, self.ref)
        for vhost in node.vhosts.values():
            if vhost.supervisor is not None:  # else it has not been started yet
                self._ended(vhost)

    def handle_cast(self, message: Any) -> None:
        assert type(message) is VhostEnded
        self._ended(message.vhost)

    def handle_info(self, message: object) -> None:
        assert message == _LOOK
        self._has_timer = False
        if not self._is_trying:
            self._is_trying = True
            Script(self, self._steps(), self._tried).resume()

    def _ended(self, vhost: VHost) -> None:
        """Note that a vhost is down, unless that is on purpose, or known."""
        if self._is_wanted(vhost) and not vhost.has_supervisor:
            self._note(vhost)

    def _is_wanted(self, vhost: VHost) -> bool:
        node = self._node
        is_known = node.vhosts.get(vhost.name) is vhost
        return is_known and not vhost.is_closing and not node.connections.is_stopping

    def _note(self, vhost: VHost) -> None:
        outages, name, error = self._node.outages.by_vhost, vhost.name, vhost.store_error
        reason = _STAYS_DOWN if error is None else str(error) or type(error).__name__
        outage = outages.get(name)
        if outage is None or outage.reason != reason:
            since_s = self.runtime.clock.wall_s() if outage is None else outage.since_s
            tries = 0 if outage is None else outage.tries
            outage = outages[name] = Outage(reason, since_s, error is not None, tries)
            self._log_down(name, outage)
        if outage.is_retried:
            outage.next_try_s = self.runtime.clock.wall_s() + PAUSE_S
            self._look_later()

    def _log_down(self, name: str, outage: Outage) -> None:
        outage.reminded_s = self.runtime.clock.monotonic_s()
        again = f"every {PAUSE_S:g} s" if outage.is_retried else "never"
        log.error("vhost is down vhost=%s reason=%s started_again=%s", name, outage.reason, again)

    def _look_later(self) -> None:
        if not self._has_timer:
            self._has_timer = True
            self.start_timer(PAUSE_S, _LOOK)

    # Starting again.

    def _steps(self) -> Steps:
        for name, outage in list(self._node.outages.by_vhost.items()):
            vhost = self._node.vhosts.get(name)
            supervisor = self.runtime.whereis(VHOSTS)
            if vhost is None or not self._is_wanted(vhost):
                self._node.outages.end(name)
            elif outage.is_retried and supervisor is not None:
                yield from self._start(vhost, outage, supervisor)

    def _start(self, vhost: VHost, outage: Outage, supervisor: Ref) -> Steps:
        if not vhost.has_supervisor:
            outage.next_try_s = None
            answer = yield Ask(supervisor, StartChild((vhost,)))
            is_started = isinstance(answer, tuple) and answer[0] == "ok"
        else:
            is_started = True  # by somebody else
        if is_started:
            self._serves(vhost.name)
        elif self._is_wanted(vhost):
            outage.tries += 1
            self._note(vhost)
            self._remind(vhost.name)

    def _serves(self, name: str) -> None:
        outage = self._node.outages.end(name)
        if outage is not None:
            down_s = self.runtime.clock.wall_s() - outage.since_s
            log.warning(
                "vhost serves again vhost=%s down_s=%.1f tries=%d", name, down_s, outage.tries + 1
            )

    def _remind(self, name: str) -> None:
        now_s, outage = self.runtime.clock.monotonic_s(), self._node.outages.by_vhost[name]
        if now_s - outage.reminded_s >= REMINDER_S:
            outage.reminded_s = now_s
            down_s = self.runtime.clock.wall_s() - outage.since_s
            log.error(
                "vhost is still down vhost=%s reason=%s tries=%d down_s=%d",
                name,
                outage.reason,
                outage.tries,
                down_s,
            )

    def _tried(self, _: object) -> None:
        self._is_trying = False
        if any(outage.is_retried for outage in self._node.outages.by_vhost.values()):
            self._look_later()


def tell_keeper(node: Node, vhost: VHost) -> None:
    """Tell the keeper that a vhost's supervisor has ended; a keeper that is being restarted looks for itself."""
    keeper = node.runtime.whereis(VHOST_KEEPER)
    if keeper is not None:
        node.runtime.send(keeper, VhostEnded(vhost))
