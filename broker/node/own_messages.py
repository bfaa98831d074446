"""The sources of the node's own messages: firehoses and the log, where messages wait for their publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.mail import OwnMessage

CONTINUE: Final = "continue"  # to the publisher


class Source(Protocol):
    """A source of messages, a bounded queue.

    Attributes:
        dropped: how many were dropped since it was last set to 0.
    """

    dropped: int

    def next(self) -> OwnMessage | None:
        """Return the next message; None: nothing waits."""


class OwnMessages:
    """The sources of the node's own messages, and whether their publisher is at work.

    Attributes:
        publisher: the actor, when it runs.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_awake = False
        self.sources: list[Source] = []
        self.publisher: Ref | None = None

    def add(self, source: Source) -> None:
        self.sources.append(source)
        self.wake()

    def remove(self, source: Source) -> None:
        """Forget a source, and its messages."""
        self.sources.remove(source)

    def wake(self) -> None:
        """Have the publisher poll its sources; call it on the event loop."""
        if not self._is_awake and self.publisher is not None:
            self._is_awake = True
            self._runtime.send(self.publisher, CONTINUE)

    def sleep(self) -> None:
        """Note that the publisher has found no more messages."""
        self._is_awake = False

    def started(self, publisher: Ref) -> None:
        self.publisher = publisher
        self._is_awake = False
        self.wake()

    def take_dropped(self) -> int:
        """Return how many messages the sources have dropped since the last call."""
        dropped = sum(source.dropped for source in self.sources)
        for source in self.sources:
            source.dropped = 0
        return dropped
