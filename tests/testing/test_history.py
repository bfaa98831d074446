"""The history checker finds what may never happen, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.testing.history import History, HistoryError


@pytest.fixture
def history() -> History:
    """Three messages, published by one channel to ``q`` and confirmed."""
    history = History()
    for name in "abc":
        history.sent("p", name, "q")
    for name in "abc":
        history.confirmed(name)
    return history


def test_messages_that_are_all_there_are_fine(history: History) -> None:
    history.check({"q": ["a", "b", "c"]})


def test_a_confirmed_message_that_is_gone_is_lost(history: History) -> None:
    assert history.violations({"q": ["a", "c"]}) == ["lost: 'b' in 'q', published by p as its 1."]


def test_what_was_not_confirmed_may_be_gone(history: History) -> None:
    history.sent("p", "d", "q")

    history.check({"q": ["a", "b", "c"]})


def test_what_a_consumer_has_acked_may_be_gone_or_there(history: History) -> None:
    history.delivered("q", "c", "a", redelivered=False)
    history.acked("q", "c", "a")

    history.check({"q": ["b", "c"]})
    history.check({"q": ["a", "b", "c"]})


def test_of_a_queue_that_is_not_looked_into_nothing_is_lost(history: History) -> None:
    history.check()


@pytest.mark.parametrize("receiver", ["the consumer", "the queue"])
def test_messages_of_a_channel_stay_in_order(history: History, receiver: str) -> None:
    if receiver == "the consumer":
        for name in "acb":
            history.delivered("q", "c", name, redelivered=False)
        found = history.violations()
    else:
        found = history.violations({"q": ["a", "c", "b"]})

    assert len(found) == 1
    assert found[0].startswith("out of order: 'b' in 'q', published by p as its 1. behind 'c'")


def test_what_comes_again_or_from_another_channel_has_no_place_in_the_order(
    history: History,
) -> None:
    history.sent("other", "x", "q")
    history.delivered("q", "c", "b", redelivered=False)
    history.delivered("q", "c", "x", redelivered=False)
    history.delivered("q", "c", "a", redelivered=True)

    history.check()


def acked(history: History) -> None:
    history.delivered("q", "c", "a", redelivered=False)
    history.acked("q", "c", "a")


def test_a_message_may_come_back_until_its_ack_is_acknowledged(history: History) -> None:
    acked(history)
    history.delivered("q", "c", "a", redelivered=True)

    history.check()


@pytest.mark.parametrize("where", ["delivered", "there"])
def test_a_message_does_not_come_back_once_its_ack_is_acknowledged(
    history: History, where: str
) -> None:
    acked(history)
    history.settled("c")
    if where == "delivered":
        history.delivered("q", "d", "a", redelivered=True)

    found = history.violations({"q": ["a", "b", "c"]} if where == "there" else None)

    assert found == ["back after its ack: 'a' in 'q', published by p as its 0."]


def disturbed_before_the_ack(history: History) -> None:
    history.delivered("q", "c", "a", redelivered=False)
    with history.disturbance():
        history.acked("q", "c", "a")
    history.settled("c")


def disturbed_while_settled(history: History) -> None:
    with history.disturbance():
        acked(history)
        history.settled("c")


@pytest.mark.parametrize("disturbed", [disturbed_before_the_ack, disturbed_while_settled])
def test_an_ack_may_be_lost_with_who_was_hit(
    history: History, disturbed: Callable[[History], None]
) -> None:
    disturbed(history)
    history.delivered("q", "d", "a", redelivered=True)

    history.check()


def test_an_ack_that_was_acknowledged_before_outlasts_what_is_done(history: History) -> None:
    acked(history)
    history.settled("c")
    with history.disturbance():
        history.delivered("q", "d", "a", redelivered=True)

    assert len(history.violations()) == 1


def test_a_message_comes_again_only_with_the_flag(history: History) -> None:
    history.delivered("q", "c", "a", redelivered=False)
    history.delivered("q", "d", "a", redelivered=True)
    history.check()
    history.delivered("q", "e", "a", redelivered=False)

    assert history.violations() == [
        "twice: 'a' in 'q', published by p as its 0. and not marked as redelivered"
    ]


def test_deliveries_to_two_clients_are_seen_in_any_order_in_a_disturbance(history: History) -> None:
    with history.disturbance():
        history.delivered("q", "two", "a", redelivered=True)
        history.delivered("q", "one", "a", redelivered=False)
    history.check()
    with history.disturbance():
        history.delivered("q", "two", "a", redelivered=False)
    history.delivered("q", "two", "b", redelivered=True)
    history.delivered("q", "one", "b", redelivered=False)

    assert [each.partition(",")[0] for each in history.violations()] == [
        "twice: 'a' in 'q'",
        "twice: 'b' in 'q'",
    ]


def test_a_queue_holds_nothing_twice(history: History) -> None:
    assert history.violations({"q": ["a", "b", "b", "c"]}) == [
        "twice: 'b' in 'q', published by p as its 1. in the queue"
    ]


def test_nothing_comes_that_was_not_published_to_the_queue(history: History) -> None:
    history.delivered("other", "c", "a", redelivered=False)
    history.delivered("q", "c", "nobody's", redelivered=False)

    assert [each.partition(":")[0] for each in history.violations()] == ["out of nothing"] * 2


def test_the_error_shows_some_and_counts_all(history: History) -> None:
    for number in range(20):
        history.sent("p", number, "q")
        history.confirmed(number)

    with pytest.raises(HistoryError) as error:
        history.check({"q": ["a", "b", "c"]})

    assert str(error.value).startswith("20 violations:\nlost: 0 in 'q'")
    assert str(error.value).endswith("and 10 more")
    assert len(error.value.violations) == 20
