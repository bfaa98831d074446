"""What goes back into a queue in many turns, against a plain set."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.runtime.ref import Ref
from leveret.broker.mail import Requeue
from leveret.broker.queue import requeueing as module
from leveret.broker.queue.consumers.consumers import Consumers
from leveret.broker.queue.requeueing import Requeueing
from rigs.refs import named
from rigs.wire.consumers import QUEUE, consume


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_MESSAGES", TURN)
    monkeypatch.setattr(module, "_BUCKET_BITS", 2)


TURN = 5
ONE = named("one")
CHANNELS = [ONE, named("two"), named("three")]


def all_of(requeueing: Requeueing, consumers: Consumers) -> list[list[int]]:
    """Go on to the end; return the turns in which messages went back."""
    turns = []
    while not requeueing.is_done():
        if some := requeueing.turn(consumers):
            turns.append(some)
    return turns


def test_what_several_channels_give_back_goes_back_the_youngest_first() -> None:
    requeueing, consumers = Requeueing(), Consumers(QUEUE)
    requeueing.give_back([set(range(0, 40, 4)), set(range(1, 40, 4))])
    requeueing.give_back([set(range(2, 40, 4)), {-1 + 4 * n for n in range(1, 11)}])

    turns = all_of(requeueing, consumers)

    assert [seq for turn in reversed(turns) for seq in turn] == list(range(40))
    assert max(map(len, turns)) < TURN + (1 << module._BUCKET_BITS)


@pytest.mark.sources
def test_refused_messages_are_settled_a_turns_worth_at_a_time() -> None:
    sizes: list[int] = []

    class Noting(Consumers):
        def settle(self, channel: object, tag: bytes | None, seqs: list[int]) -> bool:
            sizes.append(len(seqs))
            return super().settle(channel, tag, seqs)

    requeueing, consumers = Requeueing(), Noting(QUEUE)
    consumer = consumers.add(consume(ONE, b"c"))
    consumer.dealt(23)
    consumer.owe(list(range(23)))
    requeueing.refuse(Requeue(ONE, b"c", list(range(22))))

    turns = all_of(requeueing, consumers)

    assert sorted(chain.from_iterable(turns)) == list(range(22))
    assert max(sizes) <= TURN
    assert (consumer.unacked, consumer.in_flight) == ({22}, 1)


def test_a_channel_that_ends_takes_what_it_refused_along() -> None:
    goes_back_once([("deal", ONE, 12), ("refuse", ONE, 11), ("turn", ONE, 1), ("end", ONE, 1)])
    goes_back_once([("deal", ONE, 12), ("refuse", ONE, 11), ("cancel", ONE, 1), ("end", ONE, 1)])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["deal", "refuse", "end", "cancel", "turn"]),
        st.sampled_from(CHANNELS),
        st.integers(1, 12),
    ),
    max_size=40,
)


@given(STEPS)
def test_each_message_goes_back_once(steps: list[tuple[str, Ref, int]]) -> None:
    """Whatever ends or is cancelled meanwhile; what nobody gave back stays with its channel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TURN_MESSAGES", TURN)
        patch.setattr(module, "_BUCKET_BITS", 2)
        goes_back_once(steps)


def goes_back_once(steps: list[tuple[str, Ref, int]]) -> None:
    requeueing, consumers = Requeueing(), Consumers(QUEUE)
    held: dict[Ref, list[int]] = {channel: [] for channel in CHANNELS}
    back: list[int] = []
    expected: set[int] = set()
    seq = 0
    for what, channel, count in steps:
        if what == "deal":
            if not consumers.has(channel, b"c"):
                consumers.add(consume(channel, b"c"))
            seqs = list(range(seq, seq + count))
            consumer = consumers.channels[channel].consumers[b"c"]
            consumer.dealt(count)
            consumer.owe(seqs)
            held[channel] += seqs
            seq += count
        elif what == "refuse" and held[channel]:
            refused, held[channel] = held[channel][:count], held[channel][count:]
            expected.update(refused)
            requeueing.refuse(Requeue(channel, b"c", refused))
        elif what == "end":
            _, owed = consumers.remove_channel(channel)
            requeueing.forget(channel)
            requeueing.give_back(owed)
            expected.update(held[channel])
            held[channel] = []
        elif what == "cancel":
            consumers.remove(channel, b"c")
        elif what == "turn":
            back += requeueing.turn(consumers)
    back += chain.from_iterable(all_of(requeueing, consumers))

    assert sorted(back) == sorted(expected)
    for channel, seqs in held.items():
        record = consumers.channels.get(channel)
        assert set().union(*(record.unacked() if record is not None else ())) == set(seqs)
