"""The kernels' ``Caller``: system calls on a thread, of real files."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from store_kernels import NAMES, kernel_of

APPENDED, AT = b"appended", 100


class Calling:
    """A caller, its thread, and what it says is done."""

    def __init__(self, caller: Any) -> None:
        self.caller = caller
        self.outcomes: SimpleQueue[tuple[Any, int, int, int, threading.Thread]] = SimpleQueue()
        self.thread = threading.Thread(target=caller.run, args=(self._done,))
        self.thread.start()

    def _done(self, item: Any, count: int, error_no: int, sync_ns: int) -> None:
        self.outcomes.put((item, count, error_no, sync_ns, threading.current_thread()))

    def make(self, steps: list[Any], item: object = None) -> tuple[Any, ...]:
        self.caller.give(steps, item)
        return self.outcomes.get(timeout=30)

    def close(self) -> None:
        self.caller.close()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture(params=NAMES)
def calling(request: pytest.FixtureRequest) -> Iterator[Calling]:
    running = Calling(kernel_of(request.param).Caller())
    yield running
    if running.thread.is_alive():
        running.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """Give the ends of a pipe that has no room for a byte."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, bytes(65536))
    except BlockingIOError:
        os.set_blocking(writing, True)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def test_calls_are_made_in_their_order(calling: Calling, tmp_path: Path, descriptor: int) -> None:
    end = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    steps = [(end, APPENDED, -1), (descriptor, b"first", AT), (end, APPENDED, -1)]
    steps += [(descriptor, b"second", AT + 2), (descriptor, None, 0), (end, b"", -1)]
    item = object()

    found, count, error_no, sync_ns, thread = calling.make(steps, item)

    assert found is item
    assert (count, error_no) == (6, 0)
    assert 0 < sync_ns < 30e9
    assert thread is calling.thread
    assert (tmp_path / "log").read_bytes() == APPENDED * 2
    assert (tmp_path / "file").read_bytes() == bytes(AT) + b"fisecond"
    os.close(end)


def test_one_batch_comes_after_the_other(calling: Calling, descriptor: int) -> None:
    for number in range(300):
        data = b"%03d" % number
        steps = [(descriptor, data, 3 * number)] * (number % 5)
        assert calling.make(steps, number)[:4] == (number, len(steps), 0, 0)
        assert not steps or os.pread(descriptor, 3, 3 * number) == data


def test_nothing_is_done_after_a_call_that_fails(calling: Calling, descriptor: int) -> None:
    steps = [
        (descriptor, b"yes", 0),
        (-1, b"bad", 0),
        (descriptor, b"no", 3),
        (descriptor, None, 0),
    ]

    assert calling.make(steps, "it")[:4] == ("it", 1, errno.EBADF, 0)
    assert os.pread(descriptor, 9, 0) == b"yes"

    assert calling.make(steps[:1], "next")[:3] == ("next", 1, 0)


def test_a_sync_that_fails_is_told(calling: Calling) -> None:
    reading, writing = os.pipe()

    _, count, error_no, _, _ = calling.make([(writing, b"in", -1), (writing, None, 0)])

    assert (count, error_no) == (1, errno.EINVAL)  # a pipe cannot be synced
    os.close(reading)
    os.close(writing)


def test_a_write_that_is_cut_short_goes_on(calling: Calling, descriptor: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        _, count, error_no, _, _ = calling.make([(descriptor, bytes(range(16)), 0)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert (count, error_no) == (0, errno.EFBIG)  # which the second of its writes met
    assert os.pread(descriptor, 99, 0) == bytes(range(10))


def test_there_is_one_batch_at_a_time(calling: Calling) -> None:
    with full_pipe() as (reading, writing):
        calling.caller.give([(writing, b"x", -1)], "first")
        with pytest.raises(RuntimeError, match="before the last ones were done"):
            calling.caller.give([], "second")
        os.read(reading, 65536)
        assert calling.outcomes.get(timeout=30)[:3] == ("first", 1, 0)

    assert calling.make([], "third")[:4] == ("third", 0, 0, 0)


def test_what_was_given_is_done_before_the_end(calling: Calling) -> None:
    with full_pipe() as (reading, writing):
        calling.caller.give([(writing, b"x", -1)], "last")
        calling.caller.close()
        os.read(reading, 65536)
        assert calling.outcomes.get(timeout=30)[:3] == ("last", 1, 0)
    calling.thread.join(30)

    assert not calling.thread.is_alive()
    with pytest.raises(RuntimeError, match="after the end"):
        calling.caller.give([], None)


def test_items_and_bytes_are_let_go(calling: Calling, descriptor: int) -> None:
    class Item:
        gone = threading.Event()

        def __del__(self) -> None:
            self.gone.set()

    data = bytes(1000) + os.urandom(8)
    before = sys.getrefcount(data)

    calling.make([(descriptor, data, 0)], Item())

    assert Item.gone.wait(30)
    assert sys.getrefcount(data) == before


@pytest.mark.parametrize("step", [(0, "text", 0), ("0", b"", 0), (0, b""), None])
def test_what_is_no_call_is_refused(step: Any) -> None:
    calling = Calling(kernel_of("_kernel_c").Caller())

    with pytest.raises((TypeError, ValueError)):
        calling.caller.give([step], None)

    assert calling.make([], "next")[0] == "next"
    calling.close()


def test_the_compiled_one_does_not_wait_for_the_interpreter(descriptor: int) -> None:
    calling = Calling(kernel_of("_kernel_c").Caller())
    os.truncate(descriptor, 4096)
    interval = sys.getswitchinterval()
    with mmap.mmap(descriptor, 4096) as seen:
        sys.setswitchinterval(1000)  # from here on no other thread gets the lock
        try:
            calling.caller.give([(descriptor, b"!", 0)], None)
            looks = 0
            while seen[0] == 0 and looks < 100_000_000:
                looks += 1
            found = seen[0]
        finally:
            sys.setswitchinterval(interval)
    calling.close()

    assert found == ord("!")
