"""The pieces of a large body are the frames that the kernel writes in one go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.body_frames import BodyFrames
from leveret.amqp.kernel import content

OVERHEAD = 8


def pieces(frame_max: int, body: bytes, bytes_max: int) -> list[bytes]:
    frames, taken = BodyFrames(7, frame_max, body), []
    while frames.left:
        taken.append(b"".join(frames.take(bytes_max)))
    return taken


@given(
    st.integers(min_value=1, max_value=600),
    st.integers(min_value=OVERHEAD + 1, max_value=200),
    st.integers(min_value=1, max_value=400),
)
def test_together_they_are_the_kernels_frames(size: int, frame_max: int, bytes_max: int) -> None:
    body = bytes(number % 251 for number in range(size))
    part_max = min(frame_max - OVERHEAD, bytes_max)
    whole = content(7, b"", part_max + OVERHEAD, b"", body)[2 * OVERHEAD :]

    taken = pieces(frame_max, body, bytes_max)

    assert b"".join(taken) == whole
    assert all(0 < len(each) <= bytes_max + OVERHEAD * -(-bytes_max // part_max) for each in taken)


@pytest.mark.parametrize("frame_max", [0, 1 << 20])
def test_frames_are_no_larger_than_a_piece(frame_max: int) -> None:
    taken = pieces(frame_max, bytes(1000), 300)

    assert [len(each) - OVERHEAD for each in taken] == [300, 300, 300, 100]


def test_a_piece_ends_with_a_frame() -> None:
    taken = pieces(100 + OVERHEAD, bytes(1000), 350)

    assert [len(each) - 3 * OVERHEAD for each in taken[:-1]] == [300] * 3
    assert len(taken[-1]) == 100 + OVERHEAD
