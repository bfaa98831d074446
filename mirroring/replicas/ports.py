"""What a replica needs: the messages of its queue on this node, and ways to other replicas and to the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from leveret.mirroring.replicas.messages import Direct, Instruction
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import LiveSeqs, SeqRuns


class SyncPoint(NamedTuple):
    """What a replica waits for its disk for: an instruction, in an epoch, after a request for the master's state."""

    epoch: int
    request: int
    no: int


class Content(Protocol):
    """The messages of a replica.

    Attributes:
        live: the seqs of all messages.
        handed_out: messages below this seq may have been handed out to consumers. After a start, all.
    """

    live: LiveSeqs
    handed_out: int

    def publish(self, first_seq: int, messages: Any) -> None:
        """Append messages, a sequence, which follow all that are here."""

    def remove(self, seqs: SeqRuns) -> None:
        """Forget messages; unknown seqs are ignored. After a crash of the node these may be here again."""

    def sync(self, point: SyncPoint) -> None:
        """Call the replica's ``synced`` with this point when all messages so far are durable, or removed."""


class MasterContent(Content, Protocol):
    """The messages of a master."""

    def read(self, seqs: SeqRuns, found: Callable[[int, list[tuple[int, Any]]], None]) -> None:
        """Call ``found``, now or later, with a seq and those messages below it that are here then."""


class MirrorContent(Content, Protocol):
    """The messages of a mirror.

    Attributes:
        is_settled: what was removed before ``settle`` was called last may be added again.
    """

    is_settled: bool

    def insert(self, messages: Iterable[tuple[int, Any]]) -> None:
        """Add messages at any seqs, ascending; none of them is here."""

    def settle(self) -> None:
        """Begin to wait until removed messages have left."""


class Outside(Protocol):
    """Other replicas, and the record. Answers come later, as calls of the replica."""

    def broadcast(self, instruction: Instruction) -> None:
        """Send an instruction to all mirrors, in order. A mirror that may have missed one is called ``rejoined``."""

    def send(self, to: Replica, message: Direct) -> None:
        """Send a message, which may be lost."""

    def write(self, record: QueueRecord, revision: int) -> None:
        """Change the record if it has this revision; ``written`` is called with the outcome."""

    def read(self) -> None:
        """Read the record; ``seen`` is called with it, if etcd answers."""

    def confirmed(self, no: int) -> None:
        """The master has confirmed all instructions up to this one."""

    def deliverable(self, below: int) -> None:
        """The master may hand out messages below this seq."""

    def became_master(self, stored: Stored) -> None:
        """The mirror is the master of this record now; it does nothing more."""

    def ended(self, reason: str) -> None:
        """The replica does nothing more."""
