"""What replicas of a queue tell each other. A message of the queue is ``Any`` here: replicas do not look into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from leveret.mirroring.replicas.seq_runs import SeqRuns


@dataclass(frozen=True, slots=True)
class Publish:
    """Instruction: add messages, a sequence of them; the first has ``first_seq``, the others follow without gaps.

    ``is_handed_out``: they go straight to consumers, because no message is ready.
    """

    epoch: int
    no: int
    first_seq: int
    messages: Any
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
    """A mirror asks the master for its live seqs from one on; ``request`` is a number that the answer repeats."""

    request: int
    epoch: int
    first: int


@dataclass(frozen=True, slots=True)
class State:
    """The master's live seqs from ``first`` on below ``end``, after instruction ``no``.

    Attributes:
        live: the runs.
        end: the next request begins there.
        is_last: ``end`` is the seq of the next message, and there are no others.
        handed_out: messages below this seq may have been handed out.
    """

    request: int
    epoch: int
    no: int
    first: int
    end: int
    live: SeqRuns
    is_last: bool
    handed_out: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """A mirror asks for messages; ``piece`` is a number that the answer repeats."""

    epoch: int
    piece: int
    seqs: SeqRuns


@dataclass(frozen=True, slots=True)
class Copies:
    """The messages of a ``Fetch`` below a seq, by seq, but for those that were removed meanwhile."""

    epoch: int
    piece: int
    below: int
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
