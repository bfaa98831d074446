"""What replicas send each other comes back as it was, and other bytes are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.message import blind_keys_of, origin_of
from leveret.mirroring.replicas.messages import (
    Ask,
    Copies,
    Durable,
    Fetch,
    HandOut,
    Publish,
    Remove,
    Stale,
    State,
)
from leveret.mirroring.replicas.seq_runs import ALL_SEQS, runs_of
from leveret.mirroring.replicated import Batch, Replicated
from leveret.mirroring.wire import MirrorWireError, decode, encode

numbers = st.integers(0, ALL_SEQS - 1)
runs = st.sets(numbers, max_size=5).map(lambda seqs: runs_of(sorted(seqs)))
origins = st.one_of(
    st.binary(min_size=2, max_size=9),
    st.lists(st.binary(max_size=3), max_size=2).map(lambda keys: origin_of(b"e", b"k", *keys)),
)
messages = st.tuples(origins, st.binary(max_size=9), st.binary(max_size=9))


@st.composite
def batches(draw: Any) -> Batch:
    some = draw(st.lists(messages, min_size=1, max_size=5))
    some += [(some[0][0], some[0][1], b"shared meta")] * draw(st.integers(0, 2))
    expiries = st.lists(numbers, min_size=len(some), max_size=len(some))
    return Batch(some, draw(st.booleans()), draw(st.one_of(st.none(), expiries)))


copies = st.builds(Replicated, messages, st.booleans(), numbers)
answers = st.dictionaries(numbers, copies, max_size=5).map(
    lambda found: tuple(sorted(found.items()))
)
everything = st.one_of(
    st.builds(Publish, numbers, numbers, numbers, batches(), st.booleans()),
    st.builds(Remove, numbers, numbers, runs),
    st.builds(HandOut, numbers, numbers, numbers),
    st.builds(Ask, numbers, numbers, numbers),
    st.builds(State, numbers, numbers, numbers, numbers, numbers, runs, st.booleans(), numbers),
    st.builds(Fetch, numbers, numbers, runs),
    st.builds(Copies, numbers, numbers, numbers, answers),
    st.builds(Durable, numbers, numbers),
    st.builds(Stale, numbers),
)


def parts(message: Any) -> Any:
    """Return a message as plain values, with the keys that nobody is shown."""
    if isinstance(message, Publish):
        batch = message.messages
        some = [(each, blind_keys_of(each[0])) for each in batch.messages]
        start = message.epoch, message.no, message.first_seq, message.is_handed_out
        return start, some, batch.is_persistent, batch.expiries
    if isinstance(message, Copies):
        keys = [blind_keys_of(each.message[0]) for _, each in message.messages]
        return message, keys
    return message


@given(everything)
def test_a_message_comes_back_as_it_was(message: Any) -> None:
    again = decode(encode(message))
    assert type(again) is type(message)
    assert parts(again) == parts(message)


def test_messages_that_share_origin_and_head_send_them_once_and_share_them_again() -> None:
    origin, head = b"o" * 100, b"h" * 100
    batch = Batch([(origin, head, b"%d" % at) for at in range(50)], True)

    data = encode(Publish(1, 1, 0, batch))
    again = decode(data).messages.messages  # type: ignore[union-attr]

    assert len(data) < 500
    assert len({id(each[0]) for each in again}) == len({id(each[1]) for each in again}) == 1


@given(st.binary(max_size=40))
def test_other_bytes_are_refused(data: bytes) -> None:
    try:
        again = decode(data)
    except MirrorWireError:
        return
    assert parts(decode(encode(again))) == parts(again)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ([9], "length"),
        ([10, 1], "10"),
        ([9, -1], ">= 0"),
        ([2, 1, 1, [[5, 5]]], "a run from 5 to 5"),
        ([2, 1, 1, [[5, 7], [7, 9]]], "a run from 7 to 9 behind 7"),
        ([1, 1, 1, 0, False, True, None, [], []], "0 messages"),
        ([1, 1, 1, 0, False, True, [1], [[2, b"o", b"h", []]], [b"", b""]], "1 expiries"),
        ([1, 1, 1, 0, False, True, None, [[1, b"o", b"h", []]], [b"", b""]], "2 bodies"),
        ([7, 1, 1, 9, [[3, True, 0]], [], []], "1 rows"),
        (
            [7, 1, 1, 9, [[3, True, 0], [3, True, 0]], [[2, b"o", b"h", []]], [b"", b""]],
            "seq 3 behind 3",
        ),
    ],
)
def test_what_is_wrong_is_said(plain: list[Any], words: str) -> None:
    with pytest.raises(MirrorWireError, match="cannot be read") as caught:
        decode(msgspec.msgpack.encode(plain))
    assert words in str(caught.value)
