"""A checker of histories: could the operations on one object have happened one after the other?

An operation takes effect at one moment between its call and its answer. One that was not answered, or with an error,
takes effect at any moment after its call, or never. What an operation does to the object is told by a *specification*:
a function of the operation and the state before. The search is that of Wing and Gong, with the states that were
reached remembered (Lowe): exponential in the worst case, fast for histories with few operations at a time.

``is_linearizable`` has the specification of one name, under which there is nothing, or a declaration with an identity:

* ``declare`` with an identity answers the one that is there afterwards, its own if there was none;
* ``delete`` answers the identity of what was there, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

DECLARE: Final = "declare"
DELETE: Final = "delete"

_StateT = TypeVar("_StateT", bound=Hashable)


@dataclass(slots=True)
class Operation:
    """One operation on one object.

    Attributes:
        kind: what is done.
        identity: of what is declared.
        called_at: when it began; only the order counts.
        answered_at: when it was answered; None: it was not, or with an error.
        answer: what it answered.
    """

    kind: str
    identity: int | None
    called_at: float
    answered_at: float | None = None
    answer: Hashable = None


# Whether an operation can take effect in a state, and the state after it; its answer counts if it has one.
Specification: TypeAlias = Callable[[Operation, _StateT], tuple[bool, _StateT]]


def is_linearizable(operations: Sequence[Operation], first: int | None = None) -> bool:
    """Return whether the operations on one name, which has ``first`` at the start, have an order that explains them."""
    return is_explained(_that_count(operations), first, _one_name, _has_changed_nothing)


def is_explained(
    operations: Sequence[Operation],
    first: _StateT,
    specification: Specification[_StateT],
    has_changed_nothing: Callable[[Operation], bool],
) -> bool:
    """Return whether operations have an order that explains them.

    Args:
        operations: on one object.
        first: its state at the start.
        specification: of what operations do.
        has_changed_nothing: whether an operation that was answered so has changed nothing, in whatever state.
    """
    done = frozenset(at for at, each in enumerate(operations) if each.answered_at is not None)
    seen: set[tuple[frozenset[int], _StateT]] = set()
    open_ = [(frozenset[int](), first)]
    while open_:
        made, state = reached = open_.pop()
        if done <= made:
            return True
        if reached not in seen:
            seen.add(reached)
            open_ += _next(operations, made, state, specification, has_changed_nothing)
    return False


def _that_count(operations: Sequence[Operation]) -> list[Operation]:
    """Leave out declarations without an answer whose identity nobody has seen: all can be explained without them."""
    answers = {each.answer for each in operations if each.answered_at is not None}
    return [
        each
        for each in operations
        if each.answered_at is not None or each.kind == DELETE or each.identity in answers
    ]


def _next(
    operations: Sequence[Operation],
    made: frozenset[int],
    state: _StateT,
    specification: Specification[_StateT],
    has_changed_nothing: Callable[[Operation], bool],
) -> list[tuple[frozenset[int], _StateT]]:
    """Return what can be reached by one more operation."""
    left = [at for at in range(len(operations)) if at not in made]
    until = min(answered for at in left if (answered := operations[at].answered_at) is not None)
    found, without_answer = [], set[tuple[str, int | None]]()
    for at in left:
        operation = operations[at]
        if operation.called_at > until:
            continue
        is_possible, after = specification(operation, state)
        if operation.answered_at is None:
            does = operation.kind, operation.identity
            if after == state or does in without_answer:
                continue  # the one that was called before does the same
            without_answer.add(does)
        elif is_possible and has_changed_nothing(operation):
            return [(made | {at}, state)]  # no order is better than this one
        if is_possible:
            found.append((made | {at}, after))
    return found


def _one_name(operation: Operation, state: int | None) -> tuple[bool, int | None]:
    if operation.kind == DECLARE:
        answer = after = operation.identity if state is None else state
    else:
        answer, after = state, None
    return operation.answered_at is None or operation.answer == answer, after


def _has_changed_nothing(operation: Operation) -> bool:
    has_declared = operation.kind == DECLARE and operation.answer == operation.identity
    has_deleted = operation.kind == DELETE and operation.answer is not None
    return not has_declared and not has_deleted
