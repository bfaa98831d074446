"""The restarter of vhosts: it starts vhosts again that have failed by a shortage or error of the machine.

A supervisor gives up on a vhost that fails a third time in five minutes, or whose store cannot be opened. That is
right for bugs. A disk that is full or has errors, or descriptors and memory that are used up, get better by
themselves or by an operator, and nobody should have to start the node again for it. So a vhost whose store failed
for such a reason (``State.FAILED``) is started again, at most ``PAUSE_S`` after each failure, whatever the other
vhosts do. Meanwhile its clients are refused, and the other vhosts serve. There is a timer only while a vhost is down.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.actors.gen_server import GenServer
from leveret.broker.node.node import VHOSTS
from leveret.broker.node.outages import PAUSE_S
from leveret.broker.vhost.states import State
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.broker.node.node import Node

_BEGUN: Final = "begun"
_RESTART: Final = "restart"


class VhostRestarter(GenServer):
    """Starts the vhosts that have failed, every ``PAUSE_S``."""

    def init(self, node: Node) -> None:
        self._node = node
        self._is_timer_set = False
        node.outages.on_begun = partial(self.runtime.send, self.ref, _BEGUN)
        self._set_timer()  # for the outages in which its predecessor ended

    def handle_cast(self, message: object) -> None:
        """An outage has begun."""
        assert message == _BEGUN
        self._set_timer()

    def handle_info(self, message: object) -> None:
        """Start the vhosts that have failed, each second as long as one is down."""
        assert message == _RESTART
        self._is_timer_set = False
        node, supervisor = self._node, self.runtime.whereis(VHOSTS)
        if node.connections.is_stopping:
            return
        for vhost in [node.vhosts[name] for name in node.outages.by_vhost]:
            if vhost.state.now is State.FAILED and not vhost.is_closing and supervisor:
                self.call(supervisor, StartChild((vhost,)), lambda _: None, None)
        node.outages.remind()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._node.outages.by_vhost and not self._is_timer_set:
            self._is_timer_set = True
            self.start_timer(PAUSE_S, _RESTART)
