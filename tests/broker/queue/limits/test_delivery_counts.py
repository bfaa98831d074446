"""Delivery counts: what comes back is counted, given up beyond the limit, and shown in the header."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leveret.amqp.properties import Properties, decode_properties, head_of
from leveret.broker.queue.limits import delivery_counts
from leveret.broker.queue.limits.delivery_counts import DeliveryCounts, counts_of, with_count
from leveret.broker.registry.registry import QueueEntry
from leveret.queue_backing.api import Fetched


def counting(limit: int | None = None) -> tuple[DeliveryCounts, list[list[int]]]:
    given_up: list[list[int]] = []
    counts = DeliveryCounts(given_up.append)
    counts.limit = limit
    return counts, given_up


class Kept:
    """A store that keeps the counts."""

    def __init__(self) -> None:
        self.now: dict[int, int] = {}
        self.told: list[list[int]] = []

    def counts(self) -> dict[int, int]:
        return self.now

    def changed(self, seqs: Sequence[int]) -> None:
        self.told.append(list(seqs))

    def forget(self) -> None:
        self.now = {}


def kept() -> tuple[DeliveryCounts, Kept]:
    store = Kept()
    return DeliveryCounts(lambda _: None, store), store


@pytest.mark.parametrize(("limit", "times"), [(None, 9), (0, 0), (1, 1), (3, 3), (-1, 0)])
def test_a_message_goes_on_as_often_as_the_limit_says(limit: int | None, times: int) -> None:
    counts, given_up = counting(limit)

    went_on = [counts.came_back([7]) for _ in range(times)]

    assert (went_on, given_up) == ([[7]] * times, [])
    if limit is not None:
        assert (counts.came_back([7]), given_up) == ([], [[7]])


def test_messages_are_counted_one_by_one_and_keep_their_order() -> None:
    counts, store = kept()
    counts.limit = 1

    assert counts.came_back([3, 5, 9]) == [3, 5, 9]
    assert counts.came_back([2, 5]) == [2]

    assert store.now == {3: 1, 9: 1, 2: 1}
    assert store.told == [[3, 5, 9], [2, 5]]


def test_settled_messages_are_forgotten_and_others_are_not_told() -> None:
    counts, store = kept()
    counts.came_back([1, 2, 3])
    store.told.clear()

    counts.forget([7, 8])
    assert store.told == []
    counts.forget([2, 7])
    assert (store.now, store.told) == ({1: 1, 3: 1}, [[2]])
    counts.forget_all()
    assert (store.now, len(counts)) == ({}, 0)
    counts.came_back([5])
    assert store.now == {5: 1}


def test_a_purge_keeps_the_counts_of_unacked_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, store = kept()
    counts.came_back([1, 2, 3, 4])
    counts.came_back([3])

    counts.keep_only([{3, 9}, {4}])
    assert store.now == {3: 2, 4: 1}
    assert sorted(store.told[-1]) == [3, 4]
    monkeypatch.setattr(delivery_counts, "KEPT_MAX", 1)
    counts.keep_only([{3}])
    assert store.now == {}


def test_a_queue_that_counts_no_more_leaves_nothing() -> None:
    counts, store = kept()
    counts.came_back([1])
    entry = QueueEntry("/", "q", arguments={"x-queue-type": ("S", b"quorum")})

    assert counts_of(entry, counts, print) is counts
    assert counts.are_shown
    assert counts_of(QueueEntry("/", "q"), counts, print) is None
    assert store.now == {}
    assert counts_of(QueueEntry("/", "q"), None, print) is None


def test_the_count_is_one_of_the_headers() -> None:
    headers = {"z": ("I", 1), "a": ("S", b"x")}
    head = head_of(Properties(headers=headers, message_id="m", content_type="t"), 4)

    _, changed, body = with_count((b"origin", head, b"body"), 3)

    found = decode_properties(changed)
    assert list((found.headers or {}).items()) == [
        ("a", ("S", b"x")), ("x-delivery-count", ("l", 3)), ("z", ("I", 1)),
    ]  # fmt: skip
    assert (found.message_id, found.content_type, body) == ("m", "t", b"body")
    assert changed[:12] == head[:12]


def test_a_message_without_headers_gets_them() -> None:
    head = head_of(Properties(delivery_mode=2), 0)

    found = decode_properties(with_count((b"", head, b""), 1)[1])

    assert (found.headers, found.delivery_mode) == ({"x-delivery-count": ("l", 1)}, 2)


def test_only_what_came_back_shows_a_count() -> None:
    counts, _ = counting()
    counts.came_back([4])
    head = head_of(Properties(), 0)
    messages = [(b"", head, b"%d" % number) for number in range(3)]
    fetched = Fetched(messages, [4, 5, 6], 2)
    assert counts.shown(fetched) is messages, "the queue is none that shows it"

    counts.are_shown = True
    shown = counts.shown(fetched)

    assert [len(decode_properties(each[1]).headers or {}) for each in shown] == [1, 0, 0]
    assert [each[2] for each in shown] == [b"0", b"1", b"2"]
    assert shown[2] is messages[2]
    assert counts.shown(Fetched(messages, [4, 5, 6], 0)) is messages
