"""Contents that nobody will take, of many connections that end at once: one slice is freed per iteration."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest

from leveret.amqp import methods as m
from leveret.amqp.kernel import Scanner
from leveret.broker.connection.reading import content_release
from leveret.broker.connection.reading.content_release import SLICE_S, ContentRelease
from rigs.ticking_clock import TickingClock

KB = 1024


def scanner_with(bodies: tuple[int, ...]) -> Scanner:
    """Return a scanner that waits for the last octet of bodies of so many KiB, one per channel."""
    scanner = Scanner(131_072, 1 << 30)
    for channel, size_kb in enumerate(bodies, 1):
        head = struct.pack(">HHQH", 60, 0, size_kb * KB + 1, 0)
        body = bytes(size_kb * KB)
        scanner.scan(
            m.method_frame(channel, m.encode(m.BasicPublish("", "q")))
            + struct.pack(">BHI", 2, channel, len(head)) + head + b"\xce"
            + struct.pack(">BHI", 3, channel, len(body)) + body + b"\xce"
        )  # fmt: skip
    assert scanner.buffered == sum(bodies) * KB
    return scanner


class Totals(list[int]):
    """What the scanners hold after each timer; a runtime to the clock."""

    is_idle = True

    def __init__(self, scanners: list[Scanner]) -> None:
        self.scanners = scanners
        self.run_until_idle()

    def run_until_idle(self) -> None:
        self.append(sum(each.buffered for each in self.scanners))


def freed_of(scanners: list[Scanner], tick_s: float = 0.0) -> list[int]:
    """Free the contents of these scanners; return how many bytes each iteration has freed."""
    clock = TickingClock(tick_s)
    release = ContentRelease(clock)
    totals = Totals(scanners)
    for scanner in scanners:
        release.take(scanner)
    clock.attach(totals)
    clock.jump(0.0)
    assert totals[-1] == 0
    assert not clock.pending_count
    return [before - after for before, after in pairwise(totals)]


@pytest.mark.parametrize("bodies", [(1,), (31,), (32,), (64,), (5, 5, 5), (40, 40), (20, 20, 20)])
def test_an_iteration_frees_one_slice_however_many_connections_end(
    monkeypatch: pytest.MonkeyPatch, bodies: tuple[int, ...]
) -> None:
    monkeypatch.setattr(content_release, "FREED_BYTES", 32 * KB)
    monkeypatch.setattr(content_release, "FREED_BYTES_MAX", 32 * KB)
    freed = freed_of([scanner_with(bodies) for _ in range(20)])

    assert max(freed) < (32 + max(bodies)) * KB
    assert len(freed) >= sum(bodies) * 20 // (32 + max(bodies))


def test_more_is_freed_in_an_iteration_while_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_release, "FREED_BYTES", 4 * KB)
    monkeypatch.setattr(content_release, "FREED_BYTES_MAX", 30 * KB)
    freed = freed_of([scanner_with((1,) * 100) for _ in range(20)])

    assert max(freed) == freed[1] == 30 * KB
    assert 4 * KB in freed


def test_a_slice_ends_when_it_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_release, "STEP_BYTES", 4 * KB)
    freed = freed_of([scanner_with((1,) * 100)], tick_s=SLICE_S / 3)

    assert max(freed) <= 16 * KB  # three steps, or four
    assert len(freed) >= 7


@pytest.mark.skipif(
    "_kernel_py" in Scanner.__module__, reason="Python's scanner frees whole bodies"
)
def test_a_large_body_is_freed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_release, "STEP_BYTES", 4 * KB)
    monkeypatch.setattr(content_release, "FREED_BYTES", 8 * KB)

    assert freed_of([scanner_with((64, 3))]) == [8 * KB] * 8 + [3 * KB, 0]


@pytest.mark.parametrize("wrong", ["frame", "body"])
def test_a_body_is_freed_in_pieces_behind_an_error(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """A frame that is none, or more of a body than was announced."""
    monkeypatch.setattr(content_release, "STEP_BYTES", 4 * KB)
    monkeypatch.setattr(content_release, "FREED_BYTES", 8 * KB)
    failed = scanner_with((16, 16))
    failed.scan(b"no frame" if wrong == "frame" else struct.pack(">BHI", 3, 2, 5) + b"abcde\xce")

    freed = freed_of([failed])

    assert sum(freed) == 32 * KB
    assert max(freed) < 32 * KB


def test_a_slice_that_has_freed_nothing_in_its_time_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of two scanners is found empty only then."""
    monkeypatch.setattr(content_release, "STEP_BYTES", 4 * KB)
    freed = freed_of([scanner_with((8,)), scanner_with((8,))], tick_s=SLICE_S)

    assert sum(freed) <= 16 * KB
