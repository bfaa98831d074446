"""Publishing to queues of other nodes: a run goes to the delegate of each node once, however many of its queues get it.

The channel has credit with each queue, and confirms come from each, as on its own node. Besides, it stops when the
link does not take what is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from leveret.broker.registry.cluster_nodes import running_by_home
from leveret.broker.remote.mail_between_nodes import NodePublish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.broker.channel.publishing.batch import Batch
    from leveret.broker.channel.publishing.credit_flow import CreditFlow
    from leveret.broker.channel.session import ChannelActor
    from leveret.broker.mail import ProducerSeq
    from leveret.broker.registry.registry import QueueEntry

MAIL_BYTES: Final = 64 * 1024 * 1024  # of a run; a longer one goes message by message


class NodePublisher:
    """The part of a channel's publisher for queues of other nodes.

    Args:
        channel: the publisher's.
        credit: its credit; nothing more is read until a link has caught up.
    """

    __slots__ = ("_channel", "_credit")

    def __init__(self, channel: ChannelActor, credit: CreditFlow) -> None:
        self._channel = channel
        self._credit = credit

    def send(
        self,
        batch: Batch,
        queues: Sequence[QueueEntry],
        producer_seqs: Mapping[QueueEntry, Sequence[ProducerSeq | None]] | None,
        is_awaited: bool,
    ) -> list[Ref]:
        """Send a batch to those of these queues that run on other nodes; return which.

        Args:
            batch: has its number and size.
            queues: of the batch, of any nodes.
            producer_seqs: by queue, where the batch has messages of producers.
            is_awaited: a confirm, or the end of a transaction, is waited for.
        """
        run = NodePublish(
            self._channel.ref,
            [],
            batch.messages,
            batch.persistent,
            batch.size_bytes + batch.head_bytes,
            batch.first_seqno,
            batch.expiration_ms,
            batch.head_bytes,
            is_awaited,
        )
        count, reached = len(run.messages), []
        for home, there in running_by_home(queues).items():
            refs = [ref for entry in there if (ref := entry.ref) is not None]
            for ref in refs:
                self._credit.spend(ref, count, run.size_bytes)
            reached += refs
            delegate = home.delegates[there[0].vhost_name]
            if producer_seqs is None:
                run.queues = [ref.num for ref in refs]
                self._send(delegate, run)
            else:
                for entry, ref in zip(there, refs, strict=True):
                    run.queues, run.producer_seqs = [ref.num], producer_seqs[entry]
                    self._send(delegate, run)
            if home.backpressure.is_on:
                self._credit.wait_for(home.backpressure)
        return reached

    def _send(self, delegate: Ref, run: NodePublish) -> None:
        """Send a delegate a run; the link takes its bytes at once, so it may be changed then."""
        channel = self._channel
        if run.size_bytes <= MAIL_BYTES:
            channel.runtime.send(delegate, run, channel.ref)
            return
        for at, message in enumerate(run.messages):
            head_bytes = run.head_bytes if not at else 0  # the headers are counted with the first
            one = replace(
                run,
                messages=[message],
                size_bytes=len(message[2]) + head_bytes,
                first_seqno=run.first_seqno and run.first_seqno + at,
                head_bytes=head_bytes,
                producer_seqs=None if run.producer_seqs is None else run.producer_seqs[at : at + 1],
            )
            channel.runtime.send(delegate, one, channel.ref)
