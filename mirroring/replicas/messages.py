"""What replicas of a queue tell each other. A message of the queue is ``Any`` here: replicas do not look into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from leveret.mirroring.replicas.history import History
from leveret.mirroring.replicas.seq_runs import SeqRuns


@dataclass(frozen=True, slots=True)
class Publish:
    """Instruction: append messages; the first has ``first_seq``, the others follow without gaps.

    ``is_handed_out``: they go straight to consumers, because no message is ready.
    """

    epoch: int
    no: int
    first_seq: int
    messages: tuple[Any, ...]
    is_handed_out: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """Instruction: forget messages, which were acked, dropped, expired or purged."""

    epoch: int
    no: int
    seqs: SeqRuns


@dataclass(frozen=True, slots=True)
class HandOut:
    """Instruction: messages below this seq may be with consumers."""

    epoch: int
    no: int
    below: int


Instruction: TypeAlias = Publish | Remove | HandOut


@dataclass(frozen=True, slots=True)
class Ask:
    """A mirror asks the master for its state; ``request`` is a number that the answer repeats."""

    request: int
    epoch: int


@dataclass(frozen=True, slots=True)
class State:
    """The master's state after instruction ``no``; the instructions behind come as usual.

    Attributes:
        live: the seqs of its messages.
        next_seq: of the next message.
        handed_out: messages below this seq may have been handed out.
    """

    request: int
    epoch: int
    no: int
    history: History
    live: SeqRuns
    next_seq: int
    handed_out: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """A mirror asks for messages; ``piece`` is a number that the answer repeats."""

    epoch: int
    piece: int
    seqs: SeqRuns


@dataclass(frozen=True, slots=True)
class Copies:
    """The messages of a ``Fetch``, by seq, but for those that were removed meanwhile."""

    epoch: int
    piece: int
    messages: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True)
class Durable:
    """A mirror has everything up to an instruction, on its disk."""

    epoch: int
    no: int


@dataclass(frozen=True, slots=True)
class Stale:
    """The addressee's epoch is over; the record has a later one."""

    epoch: int


Direct: TypeAlias = Ask | State | Fetch | Copies | Durable | Stale
