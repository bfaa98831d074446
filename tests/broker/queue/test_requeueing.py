"""What goes back into a queue in many turns, against a plain set."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.mail import Requeue
from leveret.broker.queue import requeueing as module
from leveret.broker.queue.consumers.consumers import Consumers
from leveret.broker.queue.requeueing import Requeueing
from rigs.wire.consumers import QUEUE, consume


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_MESSAGES", TURN)
    monkeypatch.setattr(module, "_BUCKET_BITS", 2)


TURN = 5
CHANNELS = ["one", "two", "three"]


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
            return super().settle(channel, tag, seqs)  # type: ignore[arg-type]

    requeueing, consumers = Requeueing(), Noting(QUEUE)
    consumer = consumers.add(consume("one", b"c"))
    consumer.dealt(23)
    consumer.owe(list(range(23)))
    requeueing.refuse(Requeue("one", b"c", list(range(22))))  # type: ignore[arg-type]

    turns = all_of(requeueing, consumers)

    assert sorted(chain.from_iterable(turns)) == list(range(22))
    assert max(sizes) <= TURN
    assert (consumer.unacked, consumer.in_flight) == ({22}, 1)


def test_a_channel_that_ends_takes_what_it_refused_along() -> None:
    goes_back_once(
        [("deal", "one", 12), ("refuse", "one", 11), ("turn", "one", 1), ("end", "one", 1)]
    )
    goes_back_once(
        [("deal", "one", 12), ("refuse", "one", 11), ("cancel", "one", 1), ("end", "one", 1)]
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["deal", "refuse", "end", "cancel", "turn"]),
        st.sampled_from(CHANNELS),
        st.integers(1, 12),
    ),
    max_size=40,
)


@given(STEPS)
def test_each_message_goes_back_once(steps: list[tuple[str, str, int]]) -> None:
    """Whatever ends or is cancelled meanwhile; what nobody gave back stays with its channel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TURN_MESSAGES", TURN)
        patch.setattr(module, "_BUCKET_BITS", 2)
        goes_back_once(steps)


def goes_back_once(steps: list[tuple[str, str, int]]) -> None:
    requeueing, consumers = Requeueing(), Consumers(QUEUE)
    held: dict[str, list[int]] = {name: [] for name in CHANNELS}
    back: list[int] = []
    expected: set[int] = set()
    seq = 0
    for what, name, count in steps:
        if what == "deal":
            if not consumers.has(name, b"c"):  # type: ignore[arg-type]
                consumers.add(consume(name, b"c"))
            seqs = list(range(seq, seq + count))
            consumer = consumers.channels[name].consumers[b"c"]  # type: ignore[index]
            consumer.dealt(count)
            consumer.owe(seqs)
            held[name] += seqs
            seq += count
        elif what == "refuse" and held[name]:
            refused, held[name] = held[name][:count], held[name][count:]
            expected.update(refused)
            requeueing.refuse(Requeue(name, b"c", refused))  # type: ignore[arg-type]
        elif what == "end":
            _, owed = consumers.remove_channel(name)  # type: ignore[arg-type]
            requeueing.forget(name)  # type: ignore[arg-type]
            requeueing.give_back(owed)
            expected.update(held[name])
            held[name] = []
        elif what == "cancel":
            consumers.remove(name, b"c")  # type: ignore[arg-type]
        elif what == "turn":
            back += requeueing.turn(consumers)
    back += chain.from_iterable(all_of(requeueing, consumers))

    assert sorted(back) == sorted(expected)
    for name, seqs in held.items():
        record = consumers.channels.get(name)  # type: ignore[call-overload]
        assert set().union(*(record.unacked() if record is not None else ())) == set(seqs)
