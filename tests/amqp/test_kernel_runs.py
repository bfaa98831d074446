"""Runs of messages as bytes, for their way to another node: both kernels make the same, and refuse what is no run.

Tests: amqp/runs.py
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp import _kernel_py as pure
from leveret.core.message import BlindOrigin, Message, blind_keys_of, origin_of

compiled = pytest.importorskip("leveret.amqp._kernel_c")

origins = st.binary(min_size=2, max_size=9).map(
    lambda some: origin_of(some[:1], some[1:2], *[some[2:]] * (len(some) > 2))
)
sizes = st.sampled_from([0, 1, 100, 5_000])
bodies = st.builds(lambda first, size: first + bytes(size), st.binary(max_size=3), sizes)
runs = st.lists(st.tuples(origins, st.binary(max_size=20), bodies), max_size=6)


def shared(run: list[Message], has_one_origin: bool, has_one_head: bool) -> list[Message]:
    """Return a run whose messages share what they say, the heads as equal objects."""
    if not run:
        return run
    origin, head, _ = run[0]
    return [
        (origin if has_one_origin else o, bytes(bytearray(head)) if has_one_head else h, body)
        for o, h, body in run
    ]


@given(run=runs, has_one_origin=st.booleans(), has_one_head=st.booleans(), has_bodies=st.booleans())
def test_both_kernels_pack_the_same_and_read_what_the_other_has_packed(
    run: list[Message], has_one_origin: bool, has_one_head: bool, has_bodies: bool
) -> None:
    run = shared(run, has_one_origin, has_one_head)
    packed = compiled.pack_run(run, has_bodies)
    assert packed == pure.pack_run(run, has_bodies)
    block = packed[1] if has_bodies else packed[1] + b"".join([body for _, _, body in run])
    for kernel in (compiled, pure):
        arrived = kernel.unpack_run(packed[0], memoryview(block))
        assert arrived == run
        blind = [blind_keys_of(origin) for origin, _, _ in arrived]
        assert blind == [blind_keys_of(origin) for origin, _, _ in run]
        assert {type(part) for each in arrived for part in each} <= {bytes, BlindOrigin}


@given(run=runs)
def test_both_kernels_count_the_same_bytes(run: list[Message]) -> None:
    heads, contents = sum(len(head) for _, head, _ in run), sum(len(body) for _, _, body in run)
    for kernel in (compiled, pure):
        assert kernel.head_bytes(run) == heads
        assert kernel.body_bytes(run) == contents


def test_what_a_run_shares_is_packed_once_and_one_object_again(kernel: Any) -> None:
    run = [(b"\0\1q", b"head of all", bytes([n])) for n in range(100)]
    origins, packed = kernel.pack_run(run)
    assert (len(origins), packed.count(b"head of all")) == (1, 1)
    arrived = kernel.unpack_run(origins, packed)
    assert len({id(origin) for origin, _, _ in arrived}) == 1
    assert len({id(head) for _, head, _ in arrived}) == 1


@given(run=runs.filter(len), data=st.data())
def test_damaged_runs_are_refused_or_read_the_same_by_both(
    run: list[Message], data: st.DataObject
) -> None:
    origins, packed = pure.pack_run(run)
    at = data.draw(st.integers(0, min(len(packed), 40) - 1))
    octet = data.draw(st.integers(0, 255))
    damaged = packed[:at] + bytes([octet]) + packed[at + 1 :]
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] if octet & 1 else damaged

    def read(kernel: Any) -> list[Message] | None:
        try:
            return kernel.unpack_run(origins, damaged)
        except ValueError:
            return None

    assert read(compiled) == read(pure)


@pytest.mark.parametrize(
    "packed", [b"", b"\0\0\0\1\0\0\0", b"\0\0\0\1\0\0\0\1\0\0\0\0", b"\xff" * 8]
)
def test_a_run_whose_sizes_are_cut_off_is_refused(kernel: Any, packed: bytes) -> None:
    with pytest.raises(ValueError, match=f"cut off, in {len(packed)} bytes"):
        kernel.unpack_run([b"\0\1q"], packed)


def test_sizes_that_do_not_fit_the_bytes_are_refused(kernel: Any) -> None:
    origins, packed = kernel.pack_run([(b"\0\1q", b"head", b"1")])
    with pytest.raises(
        ValueError, match="a run of 21 bytes, 1 bodies, 1 heads and 1 origins, in 22"
    ):
        kernel.unpack_run(origins, packed + b"?")
    with pytest.raises(ValueError, match="1 bodies, 1 heads and 2 origins"):
        kernel.unpack_run(origins * 2, packed)


@pytest.mark.parametrize("message", [(b"\0\0", b"head"), [b"\0\0", b"head", b""]])
def test_what_is_no_message_is_not_packed(kernel: Any, message: object) -> None:
    with pytest.raises(TypeError, match="three bytes"):
        kernel.pack_run([message])
