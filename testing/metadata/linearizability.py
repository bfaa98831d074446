"""A checker of histories: could the operations on one name have happened one after the other?

The object is a name under which there is nothing, or a declaration with an identity. Operations, and what they answer:

* ``declare`` with an identity: the one that is there afterwards, its own if there was none;
* ``delete``: the identity of what was there, or None.

An operation takes effect at one moment between its call and its answer. One that was not answered, or with an error,
takes effect at any moment after its call, or never. The search is that of Wing and Gong, with the states that were
reached remembered (Lowe): exponential in the worst case, fast for histories with few operations at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

DECLARE: Final = "declare"
DELETE: Final = "delete"

_Reached: TypeAlias = tuple[
    frozenset[int], int | None
]  # the operations that were made, and what there is then


@dataclass(slots=True)
class Operation:
    """One operation on one name.

    Attributes:
        kind: ``DECLARE`` or ``DELETE``.
        identity: of what is declared.
        called_at: when it began; only the order counts.
        answered_at: when it was answered; None: it was not, or with an error.
        answer: what it answered.
    """

    kind: str
    identity: int | None
    called_at: float
    answered_at: float | None = None
    answer: int | None = None


def is_linearizable(operations: Sequence[Operation], first: int | None = None) -> bool:
    """Return whether the operations on one name, which has ``first`` at the start, have an order that explains them."""
    operations = _that_count(operations)
    done = frozenset(at for at, each in enumerate(operations) if each.answered_at is not None)
    seen: set[_Reached] = set()
    open_: list[_Reached] = [(frozenset(), first)]
    while open_:
        reached = open_.pop()
        if done <= reached[0]:
            return True
        if reached not in seen:
            seen.add(reached)
            open_ += _next(operations, *reached)
    return False


def _that_count(operations: Sequence[Operation]) -> list[Operation]:
    """Leave out declarations without an answer whose identity nobody has seen: all can be explained without them."""
    answers = {each.answer for each in operations if each.answered_at is not None}
    return [
        each
        for each in operations
        if each.answered_at is not None or each.kind == DELETE or each.identity in answers
    ]


def _next(operations: list[Operation], made: frozenset[int], state: int | None) -> list[_Reached]:
    """Return what can be reached by one more operation."""
    left = [at for at in range(len(operations)) if at not in made]
    until = min(answered for at in left if (answered := operations[at].answered_at) is not None)
    found, has_delete = [], False
    for at in left:
        operation = operations[at]
        if operation.called_at > until:
            continue
        is_possible, after = _step(operation, state)
        if operation.answered_at is not None and is_possible and after == state:
            return [(made | {at}, state)]  # it changes nothing: no order is better than this one
        if operation.answered_at is None and operation.kind == DELETE:
            if has_delete:
                continue  # the one that was called before does the same
            has_delete = True
        if is_possible and after != state:
            found.append((made | {at}, after))
    return found


def _step(operation: Operation, state: int | None) -> tuple[bool, int | None]:
    """Return whether an operation can take effect in a state, and the state after it."""
    if operation.kind == DECLARE:
        answer = after = operation.identity if state is None else state
    else:
        answer, after = state, None
    return operation.answered_at is None or operation.answer == answer, after
