"""Mails that go from node to node arrive as they were sent, and a run is not taken apart.

Tests: actors/runtime/remote.py, broker/mail.py, broker/remote/remote_gate.py
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.links.codec import BODY_BYTES_MIN, Codec, Unreadable
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import Cell, Ref
from leveret.amqp.errors import NotFound, PreconditionFailed, ResourceLocked
from leveret.broker import mail, queue_requests
from leveret.broker.limiter import ChannelLimiter, DeliveryGate
from leveret.broker.remote.mail_between_nodes import (
    NodePublish,
    numbers_of,
    numbers_parts,
    run_parts,
)
from leveret.broker.remote.remote_gate import WINDOW_BYTES, RemoteGate, RemoteLimiter
from leveret.core.message import BlindOrigin, blind_keys_of, origin_of

NO_FIELDS = {queue_requests.Purge, queue_requests.ListProducers}
CHANNEL, QUEUE = ActorRef("a", 1, Cell()), ActorRef("b", 2, Cell())


class Names:
    """Both ends of a link in one: addresses by their numbers."""

    refs: ClassVar = {1: CHANNEL, 2: QUEUE}

    def name_of(self, ref: Ref) -> tuple[Any, int]:
        return 0, ref.num

    def ref_of(self, node: Any, number: int) -> Ref:
        return self.refs[number]

    def pack_from(self, frm: Any) -> Any:
        raise AssertionError

    def unpack_from(self, frm: Any) -> Any:
        raise AssertionError


def sent(message: Any) -> Any:
    """Return a message as it arrives."""
    codec = Codec(Names(), has_bodies=True)
    packed, bodies = codec.pack(message)
    return codec.unpack(packed, b"".join(bodies))


bodies = st.one_of(st.binary(max_size=40), st.just(bytes(BODY_BYTES_MIN + 1)))
origins = st.binary(min_size=2, max_size=9).map(
    lambda some: origin_of(some[:1], some[1:2], *[some[2:]] * (len(some) > 2))
)
runs = st.lists(
    st.tuples(origins, st.binary(min_size=14, max_size=30), bodies), min_size=1, max_size=6
)


@given(run=runs, shares_origin=st.booleans(), shares_head=st.booleans())
def test_a_run_arrives_as_it_was_sent(run: Any, shares_origin: bool, shares_head: bool) -> None:
    origin, head, _ = run[0]
    run = [(origin if shares_origin else o, head if shares_head else h, body) for o, h, body in run]
    arrived = sent(NodePublish(CHANNEL, [2], run, True, 5, 1)).messages
    assert arrived == run
    assert [blind_keys_of(each[0]) for each in arrived] == [blind_keys_of(each[0]) for each in run]
    assert {type(each) for each in arrived} == {tuple}
    assert {type(part) for each in arrived for part in each} <= {bytes, BlindOrigin}


def test_what_a_run_shares_is_one_object_again() -> None:
    run = [(b"\x00\x01q", b"head of all", bytes([n])) for n in range(100)]
    origins, pieces = run_parts(run)
    assert len(origins) == 1
    assert pieces.pieces[0].count(b"head of all") == 1
    arrived = sent(NodePublish(CHANNEL, [2], run, False, 5, 1)).messages
    assert len({id(origin) for origin, _, _ in arrived}) == 1
    assert len({id(head) for _, head, _ in arrived}) == 1


def test_large_bodies_are_sent_where_they_lie() -> None:
    body = bytes(100_000)
    run = [(b"\x00\x01q", b"head", body), (b"\x00\x01q", b"head", body)]
    packed, pieces = Codec(Names(), has_bodies=True).pack(
        NodePublish(CHANNEL, [2], run, False, 5, 1)
    )
    assert len(packed) < 300
    assert sum(piece is body for piece in pieces) == 2


@given(numbers=st.lists(st.integers(0, 2**60), max_size=5))
def test_numbers_arrive_in_their_order(numbers: list[int]) -> None:
    assert numbers_of(numbers_parts(list(numbers))) == numbers


@given(first=st.integers(0, 2**60), count=st.integers(2, 3_000))
def test_numbers_that_follow_each_other_are_two(first: int, count: int) -> None:
    numbers = list(range(first, first + count))
    assert len(numbers_parts(numbers)) == 2
    assert numbers_of(numbers_parts(numbers)) == numbers


def test_a_publish_of_producers_keeps_their_numbers() -> None:
    producer_seqs = [(b"p", 1, 7, -1), None]
    run = [(b"\x00\x01q", b"head", b"1"), (b"\x00\x01q", b"head", b"2")]
    publish = NodePublish(CHANNEL, [2], run, True, 10, 5, 60_000, 8, True, True, producer_seqs)
    arrived = sent(publish)
    for name in NodePublish.__struct_fields__:
        assert getattr(arrived, name) == getattr(publish, name), name


@pytest.mark.parametrize("seqs", [None, [5, 6, 7], [5, 7, 6]])
def test_a_delivery_says_what_it_takes_of_the_window(seqs: list[int] | None) -> None:
    run = [(b"\x00\x01q", b"head", b"12"), (b"\x00\x01q", b"head", b"3"), (b"\x01ok", b"h", b"")]
    delivery = sent(mail.Deliver(QUEUE, b"tag", run, seqs, 1))
    assert type(delivery) is mail.DeliverFromNode
    assert (delivery.queue, delivery.consumer, delivery.messages) == (QUEUE, b"tag", run)
    assert (delivery.seqs, delivery.redelivered) == (seqs, 1)
    gate = RemoteGate()
    mail.Deliver(QUEUE, b"tag", run, seqs, 1).wait_at(gate)
    assert delivery.waiting_bytes == WINDOW_BYTES - gate.room_bytes == 12


def test_a_consumer_gets_stand_ins_for_gate_and_limiter() -> None:
    limiter = ChannelLimiter()
    limiter.limit = 7
    consume = queue_requests.Consume(
        CHANNEL, CHANNEL, b"t", False, True, 3, 9, limiter, DeliveryGate()
    )
    arrived = sent(consume)
    assert (type(arrived.gate), type(arrived.limiter)) == (RemoteGate, RemoteLimiter)
    assert arrived.limiter.limit == 7
    for name in ("channel", "owner", "tag", "no_ack", "exclusive", "priority", "prefetch"):
        assert getattr(arrived, name) == getattr(consume, name), name


@pytest.mark.parametrize(
    "message",
    [
        mail.Ack(CHANNEL, b"t", [1, 2, 3]),
        mail.Requeue(CHANNEL, None, [9]),
        mail.Reject(CHANNEL, b"t", [5, 3]),
        mail.Resume(CHANNEL),
        mail.Confirm(QUEUE, [(1, 5), (9, 1)]),
        mail.Confirm(QUEUE, [], False),
        mail.CreditGrant(QUEUE, 200, 5_000, True),
        mail.ConsumersGone(QUEUE, [b"a", b"b"]),
        mail.QueueDeleted(QUEUE),
        mail.ProducerFenced(QUEUE, "another epoch"),
        queue_requests.Cancel(CHANNEL, b"t"),
        queue_requests.Get(CHANNEL, True),
        queue_requests.Leave(CHANNEL),
        queue_requests.Stat(touch=False),
        queue_requests.Purge(),
        queue_requests.Delete(if_empty=True),
        queue_requests.Info(("messages",)),
        queue_requests.ListProducers(),
        queue_requests.ForgetProducer(b"p"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_mail_arrives_with_all_its_fields(message: Any) -> None:
    arrived = sent(message)
    assert type(arrived) is type(message)
    public = [each for each in dir(message) if not each.startswith("_")]
    fields = [each for each in public if not callable(getattr(message, each))]
    assert fields or type(message) in NO_FIELDS
    for name in fields:
        assert getattr(arrived, name) == getattr(message, name), name


@pytest.mark.parametrize("kind", [NotFound, PreconditionFailed, ResourceLocked])
def test_an_error_is_raised_with_its_text_on_the_other_side(kind: Any) -> None:
    error = sent(kind("queue 'q' in use", 5))
    assert (type(error), str(error), error.method) == (kind, str(kind("queue 'q' in use")), 5)


def test_a_run_whose_bytes_are_missing_is_unreadable() -> None:
    publish = NodePublish(CHANNEL, [2], [(b"\x00\x01q", b"head", b"1")], True, 5, 1)
    codec = Codec(Names(), has_bodies=True)
    packed, _ = codec.pack(publish)
    sizes = packed.index(b"\0\0\0\x04\0\0\0\x01")  # of head and body
    damaged = packed[:sizes] + b"\0\0\0\x04\0\0\0\x02" + packed[sizes + 8 :]
    arrived = codec.unpack(damaged)
    assert type(arrived) is Unreadable
    assert "a run of 22 bytes, 1 bodies, 1 heads and 1 origins, in 21 bytes" in arrived.error
