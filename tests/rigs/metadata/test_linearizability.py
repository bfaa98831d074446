"""The checker of histories of declarations and deletions."""

from __future__ import annotations

import pytest

from rigs.metadata.linearizability import DECLARE, DELETE, Operation, is_linearizable


def declare(
    identity: int, called: int, answered: int | None, answer: int | None = None
) -> Operation:
    return Operation(DECLARE, identity, called, answered, answer)


def delete(called: int, answered: int | None, answer: int | None = None) -> Operation:
    return Operation(DELETE, None, called, answered, answer)


@pytest.mark.parametrize(
    ("operations", "is_sound"),
    [
        ([], True),
        ([declare(1, 0, 1, 1), declare(2, 2, 3, 1)], True),
        ([declare(1, 0, 1, 1), declare(2, 2, 3, 2)], False),  # both won
        ([declare(1, 0, 3, 2), declare(2, 1, 2, 2)], True),  # at once: the second came first
        ([declare(1, 0, 1, 1), delete(2, 3, 1), declare(2, 4, 5, 2)], True),
        ([declare(1, 0, 1, 1), delete(2, 3, 1), declare(2, 4, 5, 1)], False),  # an older state
        ([declare(1, 0, 1, 1), delete(2, 3, 1), delete(4, 5, 1)], False),  # deleted twice
        ([declare(1, 0, 1, 1), delete(2, 3, None)], False),  # not found though declared
        ([declare(1, 0, None), declare(2, 1, 2, 1)], True),  # without an answer, but made
        ([declare(1, 0, None), declare(2, 1, 2, 2)], True),  # without an answer, and not made
        ([declare(1, 2, None), declare(2, 0, 1, 1)], False),  # seen before it was called
        ([declare(1, 0, 1, 1), delete(2, None), declare(2, 3, 4, 2)], True),
        ([declare(1, 0, 1, 1), delete(5, None), declare(2, 3, 4, 2)], False),
        ([declare(1, 0, 1, 1), *[delete(2, None)] * 30, declare(2, 3, 4, 1)], True),  # is fast
    ],
)
def test_a_history_is_explained_or_not(operations: list[Operation], is_sound: bool) -> None:
    assert is_linearizable(operations) == is_sound
