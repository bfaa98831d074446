"""Publishing to queues of other nodes: a run goes to the delegate of each node once, however many of its queues get it.

The channel has credit with each queue, and confirms come from each, as on its own node. Besides, it stops when the
link does not take what is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.registry.cluster_nodes import running_by_home
from leveret.broker.remote.mail_between_nodes import NodePublish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.mail import Numbered
    from leveret.broker.registry.cluster_nodes import LinkBackpressure
    from leveret.broker.registry.registry import QueueEntry

MAIL_BYTES: Final = 64 * 1024 * 1024  # of a run; a longer one goes message by message


class NodePublisher:
    """The part of a channel's publisher for queues of other nodes.

    Args:
        spend: spends credit with a queue, for so many messages of so many bytes.
        wait_for: has nothing more read until a link has caught up.
    """

    __slots__ = ("_channel", "_spend", "_wait_for")

    def __init__(
        self,
        channel: ChannelActor,
        spend: Callable[[Ref, int, int], None],
        wait_for: Callable[[LinkBackpressure], None],
    ) -> None:
        self._channel = channel
        self._spend = spend
        self._wait_for = wait_for

    def reach(
        self,
        entries: Sequence[QueueEntry],
        run: NodePublish,
        numbered: Mapping[QueueEntry, Sequence[Numbered | None]] | None,
    ) -> list[Ref]:
        """Send a run to those of these queues that run on other nodes; return which.

        Args:
            entries: of any nodes.
            run: for any of these nodes; its ``queues`` are set here.
            numbered: by queue, where the run has messages of producers.
        """
        count, reached = len(run.messages), []
        for home, there in running_by_home(entries).items():
            refs = [ref for entry in there if (ref := entry.ref) is not None]
            for ref in refs:
                self._spend(ref, count, run.size_bytes)
            reached += refs
            delegate = home.delegates[there[0].vhost_name]
            if numbered is None:
                run.queues = [ref.num for ref in refs]
                self._send(delegate, run)
            else:
                for entry, ref in zip(there, refs, strict=True):
                    run.queues, run.numbered = [ref.num], numbered[entry]
                    self._send(delegate, run)
            if home.backpressure.is_on:
                self._wait_for(home.backpressure)
        return reached

    def _send(self, delegate: Ref, run: NodePublish) -> None:
        """Send a delegate a run; the link takes its bytes at once, so it may be changed then."""
        channel = self._channel
        if run.size_bytes <= MAIL_BYTES:
            channel.runtime.send(delegate, run, channel.ref)
            return
        messages, numbered, head_bytes = run.messages, run.numbered, run.head_bytes
        for at, message in enumerate(messages):
            one = NodePublish(run.channel, run.queues, [message], run.persistent, 0, 0)
            one.head_bytes = head_bytes if not at else 0  # the headers are counted with the first
            one.size_bytes = len(message[2]) + one.head_bytes
            one.first_seqno = run.first_seqno and run.first_seqno + at
            one.expiration_ms, one.is_awaited = run.expiration_ms, run.is_awaited
            one.numbered = None if numbered is None else numbered[at : at + 1]
            channel.runtime.send(delegate, one, channel.ref)
