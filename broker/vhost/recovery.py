"""Recovery of a vhost: starts the actors of all its queues, at boot and after the vhost crashed.

Its start is acknowledged when all queues run, so a supervisor above knows a recovered vhost from one
that cannot recover. (RabbitMQ: ``rabbit_vhost_process``.)
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leveret.actors.actor import LATER
from leveret.actors.gen_server import GenServer
from leveret.amqp.errors import InternalError
from leveret.broker.script import Script, Steps

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import VHost


class Recovery(GenServer):
    """Starts all queues in a vhost's registry."""

    def init(self, vhost: VHost) -> object:
        self.vhost = vhost
        Script(self, self._steps(), self._recovered).resume()
        return LATER

    def _steps(self) -> Steps:
        for entry in list(self.vhost.topology.queues.values()):
            if not self.vhost.is_up:
                return  # this actor is about to be restarted
            with suppress(InternalError):  # logged; the others can be recovered
                yield from self.vhost.start_queue(entry)

    def _recovered(self, _: Any) -> None:
        self.started()
