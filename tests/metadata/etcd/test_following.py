"""How a node loads all keys, in turns that it steps through one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from leveret.core.errors import StoreError
from leveret.etcd.key_values import Event, OnEvents, OnScan, Row, Scan
from leveret.metadata.etcd.following import ROWS_PER_TURN, Following

ROWS = [Row(f"/k{number:06}", b"", 1) for number in range(2 * ROWS_PER_TURN + 1)]


class Store:
    """Keys that are scanned at once; it notes from where on they are watched."""

    def __init__(self) -> None:
        self.watched: list[int] = []

    def scan(self, prefix: str, then: OnScan) -> None:
        then(Scan(ROWS, 7))

    def watch(self, prefix: str, revision: int, on_events: OnEvents) -> Store:
        self.watched.append(revision)
        return self

    def cancel(self) -> None:
        """A watch is over."""


class Turns:
    """A clock that runs what is due when it is told to."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        self.due.append(partial(call, *args))

    def run_one(self) -> None:
        self.due.pop(0)()


class Taker:
    """A follower that notes what it is given."""

    def __init__(self) -> None:
        self.decoded: list[Row] = []
        self.received_to = 0
        self.applied = 0
        self.refusal = ""
        self.troubles: list[str] = []

    def decode(self, rows: Sequence[Row]) -> None:
        assert len(rows) <= ROWS_PER_TURN
        self.decoded += rows

    def loaded(self, scan: Scan) -> None:
        if self.refusal:
            raise StoreError(self.refusal)
        assert self.decoded[-len(ROWS) :] == scan.rows == ROWS
        self.applied = self.received_to = scan.revision

    def received(self, events: Sequence[Event]) -> None:
        raise AssertionError(events)

    def in_trouble(self, why: str, is_stale: bool) -> None:
        self.troubles.append(why)


def test_rows_are_decoded_some_in_each_turn_and_watched_when_all_are_taken() -> None:
    store, turns, taker = Store(), Turns(), Taker()
    following = Following(store, turns, "/", 1.0, 1.0, taker)
    following.load()
    seen = [(len(taker.decoded), taker.applied)]
    while turns.due:
        turns.run_one()
        seen.append((len(taker.decoded), taker.applied))

    assert seen == [(ROWS_PER_TURN, 0), (2 * ROWS_PER_TURN, 0), (len(ROWS), 7)]
    assert store.watched == [8]


def test_a_load_that_is_begun_anew_takes_the_place_of_one_that_is_not_over() -> None:
    store, turns, taker = Store(), Turns(), Taker()
    following = Following(store, turns, "/", 1.0, 1.0, taker)
    following.load()
    following.load()
    while turns.due:
        turns.run_one()

    assert store.watched == [8]
    assert len(taker.decoded) == ROWS_PER_TURN + len(ROWS)


def test_rows_of_no_use_are_loaded_again() -> None:
    store, turns, taker = Store(), Turns(), Taker()
    taker.refusal = "damaged"
    Following(store, turns, "/", 1.0, 1.0, taker).load()
    for _ in range(2):
        turns.run_one()
    assert (taker.troubles, store.watched) == (["damaged"], [])
    taker.refusal = ""
    while turns.due:
        turns.run_one()

    assert store.watched == [8]
