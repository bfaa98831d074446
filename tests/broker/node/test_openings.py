"""Few message stores are opened at once, and one that takes long holds up no other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from leveret.broker.node.openings import AT_ONCE, PATIENCE_S, Openings
from leveret.testing.virtual_clock import VirtualClock


def test_openings_take_turns_and_one_that_hangs_does_not_count() -> None:
    clock, begun = VirtualClock(), list[int]()
    openings = Openings(clock)
    begins: list[Callable[[], object]] = [
        partial(begun.append, number) for number in range(AT_ONCE + 3)
    ]
    for begin in begins:
        openings.enter(begin)
    assert begun == list(range(AT_ONCE))

    openings.leave(begins[0])
    openings.leave(begins[0])
    assert begun == list(range(AT_ONCE + 1))

    clock.jump(PATIENCE_S)
    assert begun == list(range(AT_ONCE + 3))
    openings.leave(begins[1])
    assert begun == list(range(AT_ONCE + 3)), "each begins once"


def test_very_many_that_have_ended_meanwhile_are_left_out() -> None:
    """As the starts of vhosts that were stopped or deleted while they waited."""
    openings, begun = Openings(VirtualClock()), list[int]()
    hung: list[Callable[[], object]] = [
        partial(begun.append, -1 - number) for number in range(AT_ONCE)
    ]
    for begin in hung:
        openings.enter(begin)

    def ended() -> Callable[[], object]:
        def begin() -> None:
            openings.leave(begin)

        return begin

    for _ in range(5_000):
        openings.enter(ended())
    openings.enter(partial(begun.append, 1))
    openings.leave(hung[0])

    assert begun[-1] == 1
