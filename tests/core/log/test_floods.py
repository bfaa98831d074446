"""Equal lines in a flood are counted, and values from outside are printable, under any handlers.

Tests: core/printable.py
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from leveret.core.log.floods import EVENTS_MAX, LINES_MAX, SOURCE_LINES_MAX, WINDOW_S, Floods
from leveret.core.log.loggers import logger
from leveret.core.printable import VALUE_CHARACTERS_MAX, printable, value


class Time:
    """A clock set by hand, with the calls that are due later."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now_s

    def later(self, delay_s: float, call: Callable[[], None]) -> Time:
        self.due.append((self.now_s + delay_s, call))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def join(self, timeout: float) -> None:
        assert self.due == []

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        for at_s, call in list(self.due):
            if at_s <= self.now_s:
                call()


class Bench:
    """A logger of its own with a ``Floods`` of its own, and the lines that come out."""

    def __init__(self) -> None:
        self.time = Time()
        self.floods = Floods(self.time, self.time.later)
        self.stream = io.StringIO()
        self.log = logging.getLogger("flooded")
        self.log.propagate = False
        self.log.setLevel(logging.DEBUG)
        self.handler = logging.StreamHandler(self.stream)
        self.log.addHandler(self.handler)
        self.log.addFilter(self.floods)

    def lines(self) -> list[str]:
        lines = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return lines

    def write(self, count: int, source: str | None = None) -> None:
        for number in range(count):
            self.log.error("login refused n=%d", number, extra={"source": source})


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.log.removeHandler(made.handler)
    made.log.removeFilter(made.floods)


def test_lines_beyond_those_of_a_window_are_counted(bench: Bench) -> None:
    bench.write(LINES_MAX + 50)
    written = bench.lines()
    bench.time.pass_s(WINDOW_S)

    assert len(written) == LINES_MAX
    assert bench.lines() == ["login refused repeated=50 in_s=10"]


def test_a_flood_that_goes_on_has_lines_in_every_window(bench: Bench) -> None:
    for _ in range(3):
        bench.write(LINES_MAX + 7)
        bench.time.pass_s(WINDOW_S)

    assert len(bench.lines()) == 3 * (LINES_MAX + 1)
    assert bench.time.due == []


def test_an_event_has_the_same_object_in_every_window(bench: Bench) -> None:
    """New ones, made amid a burst of work, would keep its arenas."""
    kept = list[object]()
    for _ in range(3):
        bench.write(LINES_MAX + 7)
        kept += bench.floods._counts.values()
        bench.time.pass_s(WINDOW_S)

    assert len(kept) == 3
    assert kept[0] is kept[1] is kept[2]


def test_one_source_leaves_room_for_the_lines_of_others(bench: Bench) -> None:
    bench.write(1_000, "10.0.0.1")
    bench.write(3, "10.0.0.2")

    assert len(bench.lines()) == SOURCE_LINES_MAX + 3


def test_many_sources_together_have_the_lines_of_one_event(bench: Bench) -> None:
    for number in range(10 * LINES_MAX):
        bench.write(1, f"address {number}")

    assert len(bench.lines()) == LINES_MAX
    assert len(bench.floods._counts[bench.log.name, "login refused n=%d"].sources) == LINES_MAX


def test_the_summary_has_the_highest_level_of_the_lines_it_stands_for(bench: Bench) -> None:
    for level in (logging.INFO, logging.WARNING):
        for _ in range(LINES_MAX):
            bench.log.log(level, "connection closed n=%d", 1)
    bench.lines()
    bench.handler.setLevel(logging.WARNING)
    bench.floods.flush()
    bench.handler.setLevel(logging.NOTSET)

    assert bench.lines() == [f"connection closed repeated={LINES_MAX} in_s=1"]


def test_other_events_are_written_during_a_flood(bench: Bench) -> None:
    bench.write(10_000)
    bench.lines()

    bench.log.info("connection closed")

    assert bench.lines() == ["connection closed"]


def test_the_end_of_a_broker_writes_what_was_counted(bench: Bench) -> None:
    bench.write(LINES_MAX + 1)
    bench.lines()

    bench.floods.close()

    assert bench.lines() == ["login refused repeated=1 in_s=1"]
    assert bench.time.due == []


def test_slow_lines_are_never_counted(bench: Bench) -> None:
    for _ in range(3 * LINES_MAX):
        bench.write(1, "10.0.0.1")
        bench.time.pass_s(1.0)

    assert len(bench.lines()) == 3 * LINES_MAX


def test_texts_made_up_at_run_time_do_not_grow_the_table(bench: Bench) -> None:
    for number in range(3 * EVENTS_MAX):
        text = f"text {number}"
        bench.log.info(text)

    assert len(bench.floods._counts) <= EVENTS_MAX


def test_a_flood_that_ends_in_silence_needs_one_thread_which_ends() -> None:
    floods, written = Floods(), threading.Event()
    log = logging.getLogger("flooded.alone")
    log.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: written.set() if "repeated" in record.msg else None  # type: ignore[method-assign]
    log.addHandler(handler)
    log.addFilter(floods)

    for _ in range(LINES_MAX + 2):
        log.error("again")
    timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    floods.close()

    assert len(timers) == 1
    assert written.is_set()
    assert not timers[0].is_alive()


NASTY = 'a\x1b[2Jb\x85c\u202ed\r\ne\udcff\x00 f="g" \\'


def test_values_are_printable_and_quoted_under_any_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logger("leveret.test.nasty")

    log.warning("refused user=%s vhost=%s n=%d text %s", NASTY, "orders", 7, "plain words")

    assert caplog.records[-1].getMessage() == (
        r'refused user="a\x1b[2Jb\x85c\u202ed\r\ne\udcff\x00 f=\"g\" \\" vhost=orders n=7 text plain words'
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ("orders", "orders"),
        ("127.0.0.1:5672", "127.0.0.1:5672"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("größe", "größe"),
        ("\x1b", r'"\x1b"'),
        ("x" * 600, "x" * (VALUE_CHARACTERS_MAX - 3) + "..."),
    ],
)
def test_a_value(text: str, shown: str) -> None:
    assert value(text) == shown


def test_printable_text_is_left_alone() -> None:
    assert printable("größe 中文 a=b") == "größe 中文 a=b"


def test_objects_are_shown_as_printable_text(caplog: pytest.LogCaptureFixture) -> None:
    log = logger("leveret.test.nasty")

    log.warning("failed error=%s reason=%r", ValueError("a\nb"), ValueError("c\x1b"))

    assert caplog.records[-1].getMessage() == (
        r'failed error="a\nb" reason=ValueError(' + r"'c\x1b')"
    )


def test_an_argument_that_cannot_be_shown_fails_no_caller(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError

    log = logger("leveret.test.nasty")
    log.disabled = False
    log.addFilter(swallow := logging.Filter("nobody"))
    try:
        log.warning("odd value=%s", Broken())
    finally:
        log.removeFilter(swallow)


def test_a_flood_without_a_thread_for_its_summary_has_it_with_the_next_line() -> None:
    def no_thread(*_: object) -> threading.Timer:
        raise RuntimeError("can't start new thread")

    now = [0.0]
    floods = Floods(lambda: now[0], no_thread)
    record = logging.LogRecord("leveret.test", logging.ERROR, "", 0, "event", (), None)
    written = [floods.filter(record) for _ in range(LINES_MAX + 5)]
    assert written == [True] * LINES_MAX + [False] * 5

    now[0] = WINDOW_S
    assert floods.filter(record)
