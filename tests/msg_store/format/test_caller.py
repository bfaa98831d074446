"""The kernels' ``Caller`` and ``Notifier``: system calls on a thread, of real files, and how one hears of their end."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rigs.store.store_kernels import NAMES, kernel_of

APPENDED, AT = b"appended", 100
ONE = (1).to_bytes(8, sys.byteorder)


class Calling:
    """A caller, its thread and its notifier."""

    def __init__(self, kernel: Any) -> None:
        self.read_end, write_end = os.pipe()
        self.write_end = write_end
        self.notifier = kernel.Notifier(write_end)
        self.caller = kernel.Caller(self.notifier)
        self.thread = threading.Thread(target=self.caller.run)
        self.thread.start()

    def make(self, steps: list[Any]) -> tuple[Any, ...]:
        self.notifier.expect(1)
        self.caller.submit(steps)
        return self.heard()

    def call(self, work: Callable[[], object]) -> tuple[Any, ...]:
        self.notifier.expect(1)
        self.caller.submit_call(work)
        return self.heard()

    def heard(self) -> tuple[Any, ...]:
        """Wait for the notifier, and return its count."""
        assert self.was_notified(30)
        assert os.read(self.read_end, 99) == ONE
        outcome: tuple[Any, ...] = self.caller.take_outcome()
        return outcome

    def was_notified(self, wait_s: float = 0) -> bool:
        return bool(select.select([self.read_end], [], [], wait_s)[0])

    def close(self) -> None:
        self.caller.close()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture(params=NAMES)
def calling(request: pytest.FixtureRequest) -> Iterator[Calling]:
    running = Calling(kernel_of(request.param))
    yield running
    if running.thread.is_alive():
        running.close()
    os.close(running.read_end)
    os.close(running.write_end)


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

    count, error_no, sync_ns, result = calling.make(steps)

    assert (count, error_no, result) == (6, 0, None)
    assert 0 < sync_ns < 30e9
    assert (tmp_path / "log").read_bytes() == APPENDED * 2
    assert (tmp_path / "file").read_bytes() == bytes(AT) + b"fisecond"
    os.close(end)


def test_one_batch_comes_after_the_other(calling: Calling, descriptor: int) -> None:
    for number in range(300):
        data = b"%03d" % number
        steps = [(descriptor, data, 3 * number)] * (number % 5)
        assert calling.make(steps) == (len(steps), 0, 0, None)
        assert not steps or os.pread(descriptor, 3, 3 * number) == data


def test_nothing_is_done_after_a_call_that_fails(calling: Calling, descriptor: int) -> None:
    steps = [
        (descriptor, b"yes", 0),
        (-1, b"bad", 0),
        (descriptor, b"no", 3),
        (descriptor, None, 0),
    ]

    assert calling.make(steps) == (1, errno.EBADF, 0, None)
    assert os.pread(descriptor, 9, 0) == b"yes"

    assert calling.make(steps[:1]) == (1, 0, 0, None)


def test_a_sync_that_fails_is_told(calling: Calling) -> None:
    reading, writing = os.pipe()

    outcome = calling.make([(writing, b"in", -1), (writing, None, 0)])

    assert outcome[:2] == (1, errno.EINVAL)  # a pipe cannot be synced
    os.close(reading)
    os.close(writing)


def test_a_write_that_is_cut_short_goes_on(calling: Calling, descriptor: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        outcome = calling.make([(descriptor, bytes(range(16)), 0)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert outcome[:2] == (0, errno.EFBIG)  # which the second of its writes met
    assert os.pread(descriptor, 99, 0) == bytes(range(10))


def test_there_is_one_batch_at_a_time(calling: Calling) -> None:
    with full_pipe() as (reading, writing):
        calling.notifier.expect(1)
        calling.caller.submit([(writing, b"x", -1)])
        for submit, what in ((calling.caller.submit, []), (calling.caller.submit_call, print)):
            with pytest.raises(RuntimeError, match="before the last outcome was taken"):
                submit(what)
        assert calling.caller.take_outcome() is None
        os.read(reading, 65536)
        assert calling.heard() == (1, 0, 0, None)

    assert calling.caller.take_outcome() is None
    assert calling.make([]) == (0, 0, 0, None)


def test_nothing_is_submitted_before_the_last_outcome_was_taken(calling: Calling) -> None:
    calling.notifier.expect(1)
    calling.caller.submit([])
    assert calling.was_notified(30)

    with pytest.raises(RuntimeError, match="before the last outcome was taken"):
        calling.caller.submit([])


def test_submitted_work_is_done_before_the_end(calling: Calling) -> None:
    with full_pipe() as (reading, writing):
        calling.notifier.expect(1)
        calling.caller.submit([(writing, b"x", -1)])
        calling.caller.close()
        os.read(reading, 65536)
        assert calling.heard() == (1, 0, 0, None)
    calling.thread.join(30)

    assert not calling.thread.is_alive()
    for submit, what in ((calling.caller.submit, []), (calling.caller.submit_call, print)):
        with pytest.raises(RuntimeError, match="after the end"):
            submit(what)


@pytest.mark.parametrize("is_taken", [False, True])
def test_it_ends_with_nothing_to_do(calling: Calling, is_taken: bool) -> None:
    for _ in range(50):
        again = Calling(sys.modules[type(calling.caller).__module__])
        again.notifier.expect(1)
        again.caller.submit([])
        if is_taken:
            again.heard()
        again.close()
        os.close(again.read_end)
        os.close(again.write_end)


def test_a_function_is_called_on_the_thread(calling: Calling) -> None:
    item = object()

    assert calling.call(lambda: (threading.current_thread(), item)) == (
        0, 0, 0, (calling.thread, item),
    )  # fmt: skip
    assert calling.make([]) == (0, 0, 0, None)


@pytest.fixture
def other(calling: Calling) -> Iterator[Any]:
    """Another caller with the same notifier, at work."""
    caller = type(calling.caller)(calling.notifier)
    thread = threading.Thread(target=caller.run)
    thread.start()
    yield caller
    caller.close()
    thread.join(30)


def test_the_bell_rings_once_for_all(calling: Calling, other: Any, descriptor: int) -> None:
    for number in range(100):
        calling.notifier.expect(2)
        calling.caller.submit([(descriptor, b"%03d" % number, 0)])
        assert not calling.was_notified(0.001)
        other.submit_call(lambda number=number: number)
        assert calling.heard() == (1, 0, 0, None)
        assert other.take_outcome() == (0, 0, 0, number)

    assert not calling.was_notified()


def test_items_and_bytes_are_let_go(calling: Calling, descriptor: int) -> None:
    class Item:
        gone = threading.Event()

        def __call__(self) -> None:
            """Be called."""

        def __del__(self) -> None:
            self.gone.set()

    data = bytes(1000) + os.urandom(8)
    before = sys.getrefcount(data)

    calling.make([(descriptor, data, 0)])
    calling.call(Item())

    assert Item.gone.wait(30)
    assert sys.getrefcount(data) == before


@pytest.mark.parametrize("step", [(0, "text", 0), ("0", b"", 0), (0, b""), None])
@pytest.mark.parametrize("calling", ["_kernel_c"], indirect=True)
def test_what_is_no_call_is_refused(calling: Calling, step: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        calling.caller.submit([step])

    assert calling.make([]) == (0, 0, 0, None)


@pytest.mark.parametrize("calling", ["_kernel_c"], indirect=True)
def test_the_compiled_one_does_not_wait_for_the_interpreter(
    calling: Calling, descriptor: int
) -> None:
    os.truncate(descriptor, 4096)
    interval = sys.getswitchinterval()
    with mmap.mmap(descriptor, 4096) as seen:
        sys.setswitchinterval(1000)  # from here on no other thread gets the lock
        try:
            calling.notifier.expect(1)
            calling.caller.submit([(descriptor, b"!", 0)])
            looks = 0
            while seen[0] == 0 and looks < 100_000_000:
                looks += 1
            found = seen[0]
            while calling.caller.take_outcome() is None and looks < 200_000_000:
                looks += 1
        finally:
            sys.setswitchinterval(interval)

    assert found == ord("!")
    assert looks < 200_000_000
    assert calling.was_notified(30)
