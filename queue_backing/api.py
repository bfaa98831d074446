"""BackingQueue: the interface between an amqqueue and the queue that stores its messages.

The interface is RabbitMQ's ``rabbit_backing_queue`` in batch form, so that one amqqueue works with a
variable queue, in RAM or over a store, and with a priority queue over several of them.
It is complete as RabbitMQ's: ``purge_acks``, ``is_empty`` and ``delivered`` of ``publish`` have no caller yet.

``ReplicaQueue`` has what the replicas of a queue with mirrors need besides (``mirroring``).

Terms: *ready* messages wait, *unacked* ones were handed out and may come back. A ``seq`` names a
message within its queue and is the ack tag; batches are lists of them. The functions that an amqqueue
passes in (predicates, fold steps) change nothing of the queue; a predicate is asked of each entry from the
head once. Later events reach the amqqueue as mails of the backing actor:
``Confirmed``, ``Refused``, and ``FetchReady`` for messages that had to be read.

No operation waits for the disk: it handles the messages in RAM, says ``pending`` if others must be read
first, and ``take_fetch_ready`` tells when to try again.

Confirms: ``publish`` and ``publish_delivered`` answer ``(first_seq, safe)``. A batch that is not safe
yet becomes so later, message by message; ``Confirmed`` says which.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from leveret.core.mypyc import mypyc_attr

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message

Accumulator = TypeVar("Accumulator")

Predicate: TypeAlias = "Callable[[Entry], bool]"
AckStep: TypeAlias = "Callable[[Entry, Accumulator], Accumulator]"
FoldStep: TypeAlias = "Callable[[Entry | None, bool, Accumulator], tuple[bool, Accumulator]]"
QueueMode: TypeAlias = Literal["default", "lazy"]

FOREVER_S: Final = float("inf")


class Fetched:
    """Messages taken from the head.

    Attributes:
        messages: in queue order.
        seqs: their ack tags.
        redelivered: how many of the first messages have been handed out before.
        pending: the next messages must be read first; ``FetchReady`` comes when they are in RAM.
    """

    __slots__ = ("messages", "pending", "redelivered", "seqs")

    def __init__(
        self,
        messages: list[Message],
        seqs: list[int],
        redelivered: int = 0,
        pending: bool = False,
    ) -> None:
        self.messages = messages
        self.seqs = seqs
        self.redelivered = redelivered
        self.pending = pending


class Dropped:
    """The answer of ``dropwhile``.

    Attributes:
        count: messages removed.
        head: the first entry that stays, None when the queue is empty.
        pending: the head must be read first; ``FetchReady`` comes when it is in RAM.
    """

    __slots__ = ("count", "head", "pending")

    def __init__(self, count: int, head: Entry | None, pending: bool = False) -> None:
        self.count = count
        self.head = head
        self.pending = pending


class Confirmed:
    """Mail of a backing actor: ``(first_seq, count)`` that are safe now.

    A flush of the store sends each queue one; the mails that wait in the amqqueue's mailbox are merged.
    """

    __slots__ = ("runs",)

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        self.runs = runs

    def absorb(self, later: object) -> bool:
        """Append the runs of a later one."""
        if type(later) is not Confirmed:
            return False
        self.runs += later.runs
        return True


class FetchReady:
    """Mail of a backing actor: the messages that a fetch found ``pending`` can be fetched now."""

    __slots__ = ()


class Refused:
    """Mail of a backing actor: ``(first_seq, count)`` that could not be written.

    They stay in the queue; a confirm that follows later has no addressee any more.
    """

    __slots__ = ("runs",)

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        self.runs = runs


@mypyc_attr(allow_interpreted_subclasses=True)
class BackingQueue(metaclass=ABCMeta):
    """A queue of messages without actors, consumers or time."""

    __slots__ = ()

    # What an amqqueue calls, by a ``BackingProxy``.

    @abstractmethod
    def publish(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        delivered: bool = False,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Append a batch at the tail.

        Args:
            messages: in order; the list stays the caller's.
            persistent: effective persistence of all of them.
            expiries: ms since 1970 per message, 0 = never; None = none expires.
            size_bytes: bytes of all bodies, when the caller knows.
            delivered: they were handed out before, by a queue whose mirror takes over.
            first_msg_no: the first content's number in the store; the others follow without gaps.

        Returns:
            The first ``seq`` (the others follow without gaps), and whether all are safe at once.
        """

    @abstractmethod
    def publish_delivered(
        self,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        size_bytes: int | None = None,
        first_msg_no: int = 0,
    ) -> tuple[int, bool]:
        """Store a batch that goes straight to consumers that will acknowledge; the queue is empty."""

    @abstractmethod
    def discard(self, messages: list[Message], persistent: bool, first_msg_no: int = 0) -> None:
        """Note messages that went straight to consumers that do not acknowledge."""

    @abstractmethod
    def fetch(self, limit: int, bytes_max: int, ack_required: bool) -> Fetched:
        """Take up to ``limit`` messages from the head, up to ``bytes_max`` bytes but at least one.

        With ``ack_required`` they become unacked, without they are gone.
        """

    @abstractmethod
    def drop(self, limit: int, ack_required: bool) -> list[int]:
        """Take up to ``limit`` messages from the head without their content; return their seqs.

        Fewer although there are more: their rows must be read first; ``FetchReady`` comes then.
        """

    @abstractmethod
    def ack(self, seqs: list[int]) -> int:
        """Forget unacked messages for good; unknown seqs are ignored. Return how many there were."""

    @abstractmethod
    def requeue(self, seqs: list[int]) -> int:
        """Put unacked messages back to their places; unknown seqs are ignored. Return how many."""

    @abstractmethod
    def dropwhile(self, predicate: Predicate, limit: int) -> Dropped:
        """Remove messages from the head while the predicate holds, at most ``limit``."""

    @abstractmethod
    def fetchwhile(
        self, predicate: Predicate, limit: int, bytes_max: int
    ) -> tuple[Fetched, Entry | None]:
        """As ``dropwhile``, but hand them out as unacked, within the bytes ``fetch`` keeps to.

        Returns:
            The messages, and the first entry that stays; None with ``pending`` when it is unknown.
        """

    @abstractmethod
    def ackfold(
        self, step: AckStep[Accumulator], start: Accumulator, seqs: list[int]
    ) -> Accumulator:
        """Fold over the given unacked messages, in the order of ``seqs``; nothing changes.

        An entry whose content must be read first comes without ``MESSAGE``; the first of these are read, some MB, and
        ``FetchReady`` follows. Damaged messages are left out.
        """

    @abstractmethod
    def expiries(self, seqs: list[int]) -> dict[int, int]:
        """Return when these unacked messages expire, ms since 1970, 0 = never, by seq; others are left out."""

    @abstractmethod
    def fold(
        self, step: FoldStep[Accumulator], start: Accumulator, from_seq: int = 0
    ) -> Accumulator:
        """Fold over ready and unacked messages by ``seq``; ``step`` gets whether it is unacked.

        ``step`` returns whether to go on, and the accumulator. When the next message must be read
        first, ``step`` gets None in its place and the fold ends: after ``FetchReady`` it can go on with
        ``from_seq`` above the last one seen.
        """

    @abstractmethod
    def purge(self) -> int:
        """Remove all ready messages and return how many there were."""

    @abstractmethod
    def purge_acks(self) -> int:
        """Forget all unacked messages and return how many there were."""

    @abstractmethod
    def len(self) -> int:
        """Return the number of ready messages."""

    @abstractmethod
    def len_bytes(self) -> int:
        """Return the bytes of the ready messages' bodies."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether no message is ready."""

    @abstractmethod
    def depth(self) -> int:
        """Return the number of ready and unacked messages."""

    @abstractmethod
    def set_queue_mode(self, mode: QueueMode) -> None:
        """Change between ``default`` and ``lazy``."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return figures for status and list_queues, by RabbitMQ's names."""

    @abstractmethod
    def delete_and_terminate(self) -> None:
        """End and keep nothing."""

    # What its actor calls.

    @abstractmethod
    def init(self, recover: bool) -> None:
        """Start empty, or with the messages on disk when ``recover``."""

    @abstractmethod
    def terminate(self) -> None:
        """End and keep the durable messages; unacked ones count as ready again."""

    @abstractmethod
    def abandon(self) -> None:
        """End after a crash: free the RAM and leave the disk as it is, without a word to it."""

    @abstractmethod
    def take_fetch_ready(self) -> bool:
        """Whether ``pending`` messages may have been read; says so once.

        Worth asking after ``resume`` and ``timeout``; ``FetchReady`` is sent when it says so.
        """

    @abstractmethod
    def ram_duration(self) -> float:
        """Return how many seconds of traffic are in RAM; infinite when that means nothing."""

    @abstractmethod
    def set_ram_duration_target(self, duration_s: float) -> None:
        """Keep no more than so many seconds of traffic in RAM."""

    @abstractmethod
    def needs_timeout(self) -> bool:
        """Whether work is left over for ``timeout``."""

    @abstractmethod
    def timeout(self) -> None:
        """Do a bounded piece of that work."""

    @abstractmethod
    def resume(self) -> None:
        """Go on with paging and reading; the store has room again, or has read the requested messages."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaQueue(BackingQueue):
    """A backing queue that a replica can have: messages come and go by their seqs, in any order."""

    __slots__ = ()

    @abstractmethod
    def expect_gaps(self) -> None:
        """Let seqs have gaps between them; called before the first message."""

    @abstractmethod
    def skip_to(self, seq: int) -> None:
        """Let the next message have this seq, which is above those of all messages."""

    @abstractmethod
    def insert(
        self,
        first_seq: int,
        messages: list[Message],
        persistent: bool,
        expiries: list[int] | None = None,
        first_msg_no: int = 0,
    ) -> bool:
        """Add a batch at seqs in a row, none of which is here, to its place; return whether all are safe at once.

        The queue expects gaps.
        """

    @abstractmethod
    def take_below(self, seq: int, limit: int) -> Fetched:
        """Make the ready messages below a seq unacked, at most ``limit``; return their seqs, without contents."""

    @abstractmethod
    def ready_seqs(self, from_seq: int, limit: int) -> Fetched:
        """Return the first seqs of ready messages from one on, at most ``limit``, without contents."""

    @abstractmethod
    def set_next_deliver(self, seq: int) -> None:
        """Let the messages below a seq, and no others, count as handed out."""
