"""The codec of links: what is sent arrives, with long bytes beside the message.

Tests: actors/links/sendable.py
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.links.codec import BODY_BYTES_MIN, Codec
from leveret.actors.links.sendable import Pieces, WireError
from leveret.actors.runtime.calls import From
from leveret.actors.runtime.ref import Ref


class NoActors:
    """A link whose messages name no actors and no calls."""

    def name_of(self, ref: Ref) -> tuple[Any, int]:
        raise WireError("addresses are not expected")

    def ref_of(self, node: Any, number: int) -> Ref:
        raise WireError("addresses are not expected")

    def pack_from(self, frm: From) -> Any:
        raise WireError("calls are not expected")

    def unpack_from(self, frm: Any) -> From:
        raise WireError("calls are not expected")


def bytes_of(size: int) -> st.SearchStrategy[bytes]:
    """Return bytes of that size that can be told apart."""
    return st.integers(0, 255).map(lambda octet: bytes([octet]) * size)


SHORT_AND_LONG = st.one_of(bytes_of(3), bytes_of(BODY_BYTES_MIN), bytes_of(BODY_BYTES_MIN + 1))
PIECES = st.lists(SHORT_AND_LONG, max_size=3).map(Pieces)
NESTED = st.recursive(
    st.one_of(SHORT_AND_LONG, PIECES, st.none(), st.integers(-5, 5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.integers(0, 3), inner, max_size=2),
    ),
    max_leaves=6,
)


def as_arrived(value: Any) -> Any:
    """Return a value with plain bytes in the place of pieces, which arrive as one memoryview."""
    if isinstance(value, Pieces):
        return b"".join(value.pieces)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {key: as_arrived(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_arrived(each) for each in value)
    return value


@given(message=NESTED)
def test_long_bytes_arrive_in_their_places(message: Any) -> None:
    codec = Codec(NoActors(), has_bodies=True)
    packed, bodies = codec.pack(message)
    assert as_arrived(codec.unpack(packed, b"".join(bodies))) == as_arrived(message)


def test_long_bytes_behind_a_tuple_with_others_are_not_taken_for_them() -> None:
    codec = Codec(NoActors(), has_bodies=True)
    first, second = b"a" * BODY_BYTES_MIN, b"b" * BODY_BYTES_MIN
    packed, bodies = codec.pack(((first,), second))
    assert codec.unpack(packed, b"".join(bodies)) == ((first,), second)
    assert bodies == [first, second]
    assert all(sent is given for sent, given in zip(bodies, (first, second), strict=True))
