"""What a replica needs: the messages of its queue on this node, and ways to other replicas and to the record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from leveret.mirroring.replicas.history import History
from leveret.mirroring.replicas.messages import Direct, Instruction
from leveret.mirroring.replicas.record import QueueRecord, Replica, Stored
from leveret.mirroring.replicas.seq_runs import SeqRuns


class SyncPoint(NamedTuple):
    """What a replica waits for its disk for: an instruction, in an epoch, after a request for the master's state."""

    epoch: int
    request: int
    no: int


class Content(Protocol):
    """The messages of one replica. What is done first is durable first.

    Attributes:
        history: as last set.
        next_seq: above all seqs that were ever here, as far as the disk has kept it.
        handed_out: messages below this seq may have been handed out to consumers.
    """

    history: History
    next_seq: int
    handed_out: int

    def publish(self, first_seq: int, messages: tuple[Any, ...]) -> None:
        """Append messages at ``next_seq``."""

    def insert(self, messages: Iterable[tuple[int, Any]]) -> None:
        """Add messages below ``next_seq``."""

    def remove(self, seqs: SeqRuns) -> None:
        """Forget messages; unknown seqs are ignored."""

    def adopt(self, history: History, next_seq: int, handed_out: int) -> None:
        """Set these, also to lower numbers, in one step."""

    def hand_out(self, below: int) -> None:
        """Raise ``handed_out``, if it is lower."""

    def live(self) -> SeqRuns:
        """Return the seqs of all messages."""

    def read(self, seqs: SeqRuns) -> list[tuple[int, Any]]:
        """Return those messages that are here."""

    def sync(self, point: SyncPoint) -> None:
        """Call the replica's ``synced`` with this point when everything so far is durable."""


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
