"""Which publishes wait for which queues, and how the answers are worded."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.runtime.ref import Ref
from leveret.broker.channel.confirms import Confirms
from rigs.refs import named


def frames(confirms: Confirms) -> list[tuple[str, int, bool]]:
    return [
        ("ack" if is_ack else "nack", tag, multiple)
        for is_ack, tag, multiple in confirms.take_answers()
    ]


def test_a_single_answer_is_not_multiple() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(1), 1, [named("q")])

    confirms.answer(named("q"), [(1, 1)], ok=True)

    assert frames(confirms) == [("ack", 1, False)]


def test_all_below_the_smallest_waiting_number_go_as_one_frame_and_the_rest_singly() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(3), 3, [named("a")])
    confirms.wait(confirms.number(1), 1, [named("b")])
    confirms.wait(confirms.number(2), 2, [named("a")])

    confirms.answer(named("a"), [(1, 3), (5, 2)], ok=True)

    assert frames(confirms) == [("ack", 3, True), ("ack", 5, False), ("ack", 6, False)]


def test_a_run_for_two_queues_is_safe_when_both_have_said_so() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(2), 2, [named("a"), named("b")])

    confirms.answer(named("a"), [(1, 2)], ok=True)
    assert frames(confirms) == []

    confirms.answer(named("b"), [(1, 2)], ok=True)
    assert frames(confirms) == [("ack", 2, True)]


def test_one_refusal_refuses_the_run() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(1), 1, [named("a"), named("b")])

    confirms.answer(named("a"), [(1, 1)], ok=False)
    confirms.answer(named("b"), [(1, 1)], ok=True)

    assert frames(confirms) == [("nack", 1, False)]


def test_an_ack_does_not_run_over_a_nack_below_it() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(1), 1, [named("a")])
    confirms.wait(confirms.number(1), 1, [named("b")])
    confirms.wait(confirms.number(1), 1, [named("b")])

    confirms.answer(named("a"), [(1, 1)], ok=False)
    confirms.answer(named("b"), [(2, 1), (3, 1)], ok=True)

    assert frames(confirms) == [("ack", 2, False), ("ack", 3, False), ("nack", 1, False)]


@pytest.mark.parametrize(("deleted", "word"), [(True, "ack"), (False, "nack")])
def test_what_an_ended_queue_owes_is_confirmed_only_if_it_was_deleted(
    deleted: bool, word: str
) -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(2), 2, [named("q")])

    assert confirms.gone(named("q"), deleted)

    assert frames(confirms) == [(word, 2, True)]
    assert not confirms._runs


def test_part_of_a_run_may_be_answered_alone() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(5), 5, [named("q")])

    confirms.answer(named("q"), [(2, 2)], ok=True)
    assert frames(confirms) == [("ack", 2, False), ("ack", 3, False)]

    confirms.answer(named("q"), [(1, 1), (4, 2)], ok=True)
    assert frames(confirms) == [("ack", 5, True)]


def test_answers_of_strangers_and_repeated_answers_change_nothing() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(1), 1, [named("q")])

    confirms.answer(named("other"), [(1, 1)], ok=True)
    assert frames(confirms) == []

    confirms.answer(named("q"), [(1, 1)], ok=True)
    confirms.answer(named("q"), [(1, 1)], ok=True)
    assert frames(confirms) == [("ack", 1, False)]


@given(st.data())
def test_every_number_is_answered_exactly_once_and_with_the_right_word(data: Any) -> None:
    queues = [named("a"), named("b"), named("c")]
    confirms = Confirms()
    owed: dict[Ref, list[int]] = {queue: [] for queue in queues}
    refused: set[int] = set()
    told: dict[int, str] = {}

    def take() -> None:
        for word, tag, multiple in frames(confirms):
            first = 1 if multiple else tag
            for number in range(first, tag + 1):
                if multiple and number in told:
                    continue
                assert number not in told
                told[number] = word

    for _ in range(data.draw(st.integers(1, 12))):
        count = data.draw(st.integers(1, 4))
        targets = data.draw(st.lists(st.sampled_from(queues), unique=True))
        first = confirms.number(count)
        if targets:
            confirms.wait(first, count, targets)
        else:
            confirms.settle_now(first, count)
        for queue in targets:
            owed[queue] += range(first, first + count)
        queue = data.draw(st.sampled_from(queues))
        some = data.draw(st.integers(0, 5))
        ok = data.draw(st.booleans())
        numbers, owed[queue] = owed[queue][:some], owed[queue][some:]
        confirms.answer(queue, [(number, 1) for number in numbers], ok)
        if not ok:
            refused.update(numbers)
        take()
    for queue in queues:
        confirms.gone(queue, ok=True)
    take()

    assert sorted(told) == list(range(1, confirms.next_seqno))
    assert {number for number, word in told.items() if word == "nack"} == refused
    assert not confirms._runs


def test_one_run_that_waits_for_long_keeps_nothing_of_those_that_came_and_went() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(4), 4, [named("stuck")])
    for _ in range(1_000):
        first = confirms.number(1)
        confirms.wait(first, 1, [named("q")])
        confirms.answer(named("q"), [(first, 1)], ok=True)
        assert frames(confirms) == [("ack", first, False)]
    assert len(confirms._firsts) < 100

    confirms.answer(named("stuck"), [(2, 2)], ok=True)
    assert frames(confirms) == [("ack", 2, False), ("ack", 3, False)]
    confirms.answer(named("stuck"), [(1, 1), (4, 1)], ok=True)
    assert frames(confirms) == [("ack", 4, True)]


def test_more_queues_may_come_while_their_owner_owes_an_answer() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(3), 3, [named("owner")])
    confirms.wait_also(named("owner"), [named("a"), named("b")])
    for queue in (named("a"), named("b")):
        confirms.answer(queue, [(2, 1)], ok=True)  # cuts the run
    confirms.wait_also(named("owner"), [named("c")])
    for queue in (named("a"), named("b")):
        confirms.answer(queue, [(1, 1), (3, 1)], ok=True)
    assert frames(confirms) == []
    confirms.gone(named("owner"), ok=True)
    assert frames(confirms) == []

    confirms.answer(named("c"), [(1, 2)], ok=True)
    assert frames(confirms) == [("ack", 2, True)]
    confirms.answer(named("c"), [(3, 1)], ok=False)
    assert frames(confirms) == [("nack", 3, False)]
    assert not confirms._runs


def test_a_queue_that_owes_already_owes_more() -> None:
    confirms = Confirms()
    confirms.wait(confirms.number(1), 1, [named("a")])
    confirms.wait(confirms.number(1), 1, [named("owner")])
    confirms.wait_also(named("owner"), [named("a"), named("b")])
    confirms.gone(named("owner"), ok=True)

    confirms.answer(named("b"), [(2, 1)], ok=True)
    assert frames(confirms) == []
    confirms.answer(named("a"), [(1, 2)], ok=True)
    assert frames(confirms) == [("ack", 2, True)]
