"""A vhost for one test: added before the test and deleted after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from leveret.management.verbs.users import UserAdmin
from leveret.management.verbs.vhosts import VhostAdmin
from leveret.testing.expectations import WITHIN_S, Expectation
from leveret.testing.queue_inspector import QueueInspector

if TYPE_CHECKING:
    from leveret.server.broker import Broker
    from leveret.testing.broker import BrokerThread
    from leveret.testing.manual_clock import ManualClock
    from leveret.testing.seen_messages import SeenMessage

_ALL: Final = ".*"
_numbers: Final = itertools.count(1)


class FreshVhost:
    """One vhost of a running broker, with the broker's default user."""

    def __init__(self, thread: BrokerThread, name: str | None = None) -> None:
        self.thread = thread
        self.vhost = name or f"test-{next(_numbers)}"
        config = thread.config
        self.user, self.password = config.default_user, config.default_pass
        node = thread.broker.node
        self._users, self._vhosts = UserAdmin(node), VhostAdmin(node)
        thread.wait_for(self._make())

    async def _make(self) -> None:
        await self._vhosts.add_vhost(self.vhost)
        await self._users.set_permissions(self.vhost, self.user, _ALL, _ALL, _ALL)

    def __repr__(self) -> str:
        return f"<vhost {self.vhost!r} of {self.thread!r}>"

    def delete(self) -> None:
        """Delete the vhost and close its connections; harmless when the broker has ended."""
        thread = self.thread
        if thread.is_running and self.vhost in thread.run(lambda: list(self.broker.node.vhosts)):
            thread.wait_for(self._vhosts.delete_vhost(self.vhost))

    # The broker.

    @property
    def broker(self) -> Broker:
        """The broker; it belongs to its own thread (``thread.run``)."""
        return self.thread.broker

    @property
    def clock(self) -> ManualClock:
        """The broker's clock, of the broker's thread. Tests set the time with the fixture ``virtual_clock``."""
        return self.thread.clock

    @property
    def host(self) -> str:
        return self.thread.address[0]

    @property
    def port(self) -> int:
        return self.thread.address[1]

    @property
    def url(self) -> str:
        """An AMQP URL of this vhost, with user and password."""
        who = f"{quote(self.user, '')}:{quote(self.password, '')}"
        return f"amqp://{who}@{self.broker.addresses[0].place}/{quote(self.vhost, '')}"

    # The contents.

    def queue(self, name: str) -> QueueInspector:
        """Return a view of a queue; the queue need not exist yet."""
        return QueueInspector(self.thread, self.vhost, name)

    def queue_names(self) -> list[str]:
        return self.thread.run(lambda: list(self.broker.node.vhosts[self.vhost].topology.queues))

    def bindings(self) -> list[tuple[str, str, str]]:
        """Return ``(exchange, routing_key, queue or exchange)`` of all explicit bindings."""

        def found() -> list[tuple[str, str, str]]:
            topology = self.broker.node.vhosts[self.vhost].topology
            return [
                (each.source, each.key.decode("utf-8", "surrogateescape"), each.destination)
                for each in topology.bindings()
            ]

        return self.thread.run(found)

    def expect_published(
        self,
        exchange: str | None = None,
        routing_key: str | None = None,
        where: Callable[[SeenMessage], object] | None = None,
        *,
        count: int | None = None,
        within_s: float = WITHIN_S,
    ) -> Expectation:
        """Return a block, ``with`` or ``async with``, that must publish such messages to this vhost.

        Its value is the list of matching messages. Messages count whether a queue gets them or not.

        Args:
            exchange: its name, ``""`` is the default exchange; None is any.
            routing_key: None is any.
            where: a predicate that the message must satisfy too.
            count: the exact number, 0 for none; by default at least one.
            within_s: how long, in real time, messages may be in flight when the block ends.

        Returns:
            The block; a failure raises ``AssertionError`` with the messages that were published instead.
        """

        def is_meant(vhost: Any) -> bool:
            return vhost is self.broker.node.vhosts.get(self.vhost)

        return Expectation(is_meant, exchange, routing_key, where, count, within_s)
