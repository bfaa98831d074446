"""What a member does, on a simulated network: joins, deaths, fences, drains and bounds, one at a time.

The first tests have the behaviours of RabbitMQ's unit_gm_SUITE.

Tests: gm/ring/frames.py, gm/ring/limits.py, gm/ring/newcomer.py, gm/ring/news.py,
    gm/ring/outbox.py, gm/ring/streams.py
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from leveret.gm.callbacks import Answer, Become, Callbacks, Stop
from leveret.gm.records.group import Entry as Place
from leveret.gm.records.group import GmError, Group, LostMembershipError, MemberId, Stamp
from leveret.gm.records.store import Stored
from leveret.gm.records.transactions import Add, Create, Erase, Forget, MarkDead, Read
from leveret.gm.ring import effects, frames, limits
from leveret.gm.ring import member as member_module
from leveret.gm.ring.frames import (
    Activity,
    Ask,
    CatchUp,
    Check,
    Entry,
    Frame,
    JoinRequest,
    NotReady,
    Welcome,
)
from leveret.gm.ring.limits import Limits
from leveret.gm.ring.member import (
    FORGOTTEN,
    LOST,
    NOCONNECTION,
    RING_SHUTDOWN,
    Member,
    NotJoinedError,
    Phase,
)
from rigs.gm.ring import NAME, SimulatedMember, SimulatedRing

SOON_S = 1.0


class Heard(Callbacks):
    """Notes what is called, and answers as it is told."""

    def __init__(self, answer: Callable[[bytes], Answer] = lambda _: None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answer = answer

    def joined(self, me: MemberId, members: frozenset[MemberId]) -> Answer:
        self.calls.append(("joined", members))
        return None

    def members_changed(self, births: frozenset[MemberId], deaths: frozenset[MemberId]) -> Answer:
        self.calls.append(("members_changed", births, deaths))
        return None

    def handle_msg(self, publisher: MemberId, message: bytes) -> Answer:
        self.calls.append(("handle_msg", publisher, message))
        return self.answer(message)

    def handle_terminate(self, reason: object) -> None:
        self.calls.append(("handle_terminate", reason))

    @property
    def messages(self) -> list[bytes]:
        return [call[2] for call in self.calls if call[0] == "handle_msg"]


def joined(ring: SimulatedRing, count: int) -> tuple[list[SimulatedMember], list[Heard]]:
    """Start members that note what they hear, one after the other."""
    heard = [Heard() for _ in range(count)]
    members = []
    for number, each in enumerate(heard):
        members.append(ring.start(f"n{number}", each))
        ring.clock.jump(SOON_S)
    assert len(ring.ready()) == count
    return members, heard


def until(ring: SimulatedRing, holds: Callable[[], object], step_s: float = 0.001) -> None:
    """Let time pass until something holds, for two seconds at most."""
    for _ in range(2000):
        if holds():
            return
        ring.clock.jump(step_s)
    raise AssertionError("it never happened")


def is_listed(ring: SimulatedRing, member: SimulatedMember) -> bool:
    record = ring.record
    return record is not None and record.is_alive(member.me)


def left_of(ring: SimulatedRing, member: SimulatedMember) -> SimulatedMember:
    assert member.member.view is not None
    return ring.members[member.member.view.left]


def in_ring_order(ring: SimulatedRing, first: SimulatedMember) -> list[SimulatedMember]:
    assert first.member.view is not None
    alive = first.member.view.alive
    at = alive.index(first.me)
    return [ring.members[name] for name in alive[at:] + alive[:at]]


def assert_at_rest(ring: SimulatedRing) -> None:
    record = ring.record
    assert record is not None
    assert {place.member for place in record.entries} == set(ring.members)
    for each in ring.members.values():
        assert each.member.view is not None
        assert each.member.view.stamp == record.stamp
        assert each.member.pending == {}


# unit_gm_SUITE.


def test_joins_and_leaves_are_reported_to_both(ring: SimulatedRing) -> None:
    (one, two), (heard_one, heard_two) = joined(ring, 2)

    assert heard_one.calls == [
        ("joined", frozenset({one.me})),
        ("members_changed", frozenset({two.me}), frozenset()),
    ]
    assert heard_two.calls == [("joined", frozenset({one.me, two.me}))]

    one.leave()
    ring.clock.jump(SOON_S)

    assert heard_one.calls[-1] == ("handle_terminate", "normal")
    assert heard_two.calls[-1] == ("members_changed", frozenset(), frozenset({one.me}))
    assert_at_rest(ring)


@pytest.mark.parametrize("way", [SimulatedMember.broadcast, SimulatedMember.confirmed_broadcast])
def test_a_broadcast_reaches_both(
    ring: SimulatedRing, way: Callable[[SimulatedMember, bytes], None]
) -> None:
    (one, _), heard = joined(ring, 2)
    way(one, b"magic")
    assert heard[0].messages == [b"magic"], "its own publisher has it at once"
    ring.clock.jump(SOON_S)

    assert [each.messages for each in heard] == [[b"magic"], [b"magic"]]
    assert_at_rest(ring)


def test_the_death_of_a_third_member_is_reported_after_two_confirmed_broadcasts(
    ring: SimulatedRing,
) -> None:
    (one, two, three), heard = joined(ring, 3)
    three.crash()
    for publisher, message in ((one, b"1"), (two, b"2")):
        publisher.confirmed_broadcast(message)
        ring.clock.jump(SOON_S)

    for each in heard[:2]:
        assert each.calls[-1] != each.calls[-2]
        assert ("members_changed", frozenset(), frozenset({three.me})) in each.calls
        assert each.messages == [b"1", b"2"]
    assert ring.history.counts()["confirmed"] == 2
    assert_at_rest(ring)


def test_a_thousand_messages_of_each_publisher_arrive_in_order(ring: SimulatedRing) -> None:
    (one, two), heard = joined(ring, 2)
    sent = [b"%d" % number for number in range(1, 1001)]
    for number in sent:
        one.broadcast(b"one " + number)
        two.broadcast(b"two " + number)
        if int(number) % 50 == 0:
            ring.clock.jump(0.003)
    ring.clock.jump(SOON_S)

    for each in heard:
        for name in (b"one ", b"two "):
            assert [m[4:] for m in each.messages if m.startswith(name)] == sent
    assert_at_rest(ring)


def test_a_member_whose_record_was_deleted_while_its_neighbour_died_stops(
    ring: SimulatedRing,
) -> None:
    (one, two), (heard, _) = joined(ring, 2)
    record = ring.store.memory.current(NAME)
    ring.store.memory.write(NAME, None, record.revision, lambda _: None)
    two.crash()
    ring.clock.jump(SOON_S)

    assert one.reason == LOST
    assert heard.calls[-1] == ("handle_terminate", LOST)


# Joins.


def test_a_newcomer_hears_nothing_of_what_was_published_before_and_all_of_what_comes_after(
    ring: SimulatedRing,
) -> None:
    (one, _), _ = joined(ring, 2)
    for number in range(20):
        one.broadcast(b"before %d" % number)
    late = Heard()
    ring.start("n9", late)
    until(ring, lambda: late.calls)
    for number in range(20):
        one.broadcast(b"after %d" % number)
    ring.clock.jump(SOON_S)

    assert late.messages[-20:] == [b"after %d" % number for number in range(20)]
    assert len(late.messages) <= 40


def test_many_join_at_once(ring: SimulatedRing) -> None:
    for number in range(6):
        ring.start(f"n{number}")
    ring.clock.jump(5.0)

    assert len(ring.ready()) == 6
    assert_at_rest(ring)


@pytest.mark.parametrize("is_in_the_record", [False, True])
@pytest.mark.parametrize("with_others", [False, True])
def test_a_newcomer_whose_left_neighbour_dies_joins_all_the_same(
    ring: SimulatedRing, is_in_the_record: bool, with_others: bool
) -> None:
    old, _ = joined(ring, 3 if with_others else 1)
    newcomer = ring.start("n9")
    until(ring, lambda: newcomer.member._newcomer.asked)
    asked = newcomer.member._newcomer.asked
    assert asked is not None
    if is_in_the_record:
        until(ring, lambda: is_listed(ring, newcomer), 0.0001)
    ring.members[asked].crash()
    ring.clock.jump(2.0)

    assert newcomer.is_ready
    assert len(ring.ready()) == len(old)
    assert_at_rest(ring)


def test_a_newcomer_that_dies_before_it_has_joined_leaves_nothing(ring: SimulatedRing) -> None:
    (one, two), _ = joined(ring, 2)
    newcomer = ring.start("n9")
    until(ring, lambda: is_listed(ring, newcomer), 0.0001)
    newcomer.crash()
    one.broadcast(b"1")
    two.broadcast(b"2")
    ring.clock.jump(SOON_S)

    assert_at_rest(ring)


def test_a_ring_in_which_nobody_has_a_state_begins_with_none() -> None:
    """The only member with a state dies when two newcomers are in the record, which most seeds let happen."""
    ring = SimulatedRing(seed=1)
    (one,), _ = joined(ring, 1)
    newcomers = [ring.start("n8"), ring.start("n9")]
    until(ring, lambda: all(is_listed(ring, each) for each in newcomers), 0.0001)
    assert not any(each.is_ready for each in newcomers)
    one.crash()
    ring.clock.jump(2.0)
    newcomers[0].confirmed_broadcast(b"1")
    ring.clock.jump(SOON_S)

    assert all(each.is_ready for each in newcomers)
    assert ring.history.counts()["confirmed"] == 1
    assert_at_rest(ring)


def test_a_group_whose_members_are_all_dead_begins_a_new_epoch(ring: SimulatedRing) -> None:
    old, _ = joined(ring, 2)
    before = ring.record
    for each in old:
        each.crash()
    newcomer = ring.start("n9")
    ring.clock.jump(2.0)

    after = ring.record
    assert before is not None
    assert after is not None
    assert after.epoch > before.epoch
    assert newcomer.is_ready
    assert_at_rest(ring)


def test_a_newcomer_that_reaches_nobody_ends_and_declares_nobody_dead(ring: SimulatedRing) -> None:
    joined(ring, 2)
    record = ring.record
    for node in ("n0", "n1"):
        ring.network.cut(node, "n9")
    newcomer = ring.start("n9")
    ring.clock.jump(SOON_S)

    assert newcomer.reason == NOCONNECTION
    assert ring.record == record
    assert len(ring.ready()) == 2


# A machine alone, by hand.

ME, LEFT, RIGHT, OTHER = (MemberId("n", number) for number in range(1, 5))


def group(
    *names: MemberId, dead: tuple[MemberId, ...] = (), version: int = 3, epoch: int = 5
) -> Group:
    return Group(epoch, version, tuple(Place(name, name not in dead) for name in names))


def newcomer(bounds: Limits | None = None) -> Member:
    machine = Member(ME, Random(1), bounds or Limits())
    machine.start()
    return machine


def wanted(machine: Member, kind: type) -> list[Any]:
    return [each for each in machine.take_effects() if isinstance(each, kind)]


def sent(machine: Member) -> list[tuple[MemberId, Frame]]:
    return [(each.to, each.frame) for each in wanted(machine, effects.Send)]


def ready(record: Group | None = None, bounds: Limits | None = None) -> Member:
    """Return a member with a left and a right neighbour, and an empty state."""
    machine = newcomer(bounds)
    record = record or group(LEFT, ME, RIGHT)
    machine.answered(record)
    machine.receive(LEFT, CatchUp(record.stamp, [], True, True))
    machine.take_effects()
    return machine


def news(publisher: MemberId, first: int, *bodies: bytes, acked: int = -1) -> Entry:
    return Entry(publisher, first, list(bodies), acked)


STAMP = group().stamp


def test_a_publication_of_another_is_delivered_and_then_passed_on() -> None:
    machine = ready()
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))

    assert effects.Deliver(LEFT, [b"a"]) in machine.take_effects()
    assert machine.is_urgent
    machine.idle()
    assert machine.take_effects() == [effects.Send(RIGHT, Activity(STAMP, [news(LEFT, 0, b"a")]))]
    assert not machine.has_unsent


def test_what_waits_together_travels_in_one_frame() -> None:
    machine = ready(group(LEFT, ME, RIGHT, OTHER))
    machine.broadcast([b"1"])
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a"), news(OTHER, 0, b"b", b"c")]))
    machine.confirmed_broadcast(b"2", "tag")
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 1, b"d", acked=0), news(ME, 0, b"1")]))
    assert sent(machine) == []
    machine.idle()

    assert sent(machine) == [
        (
            RIGHT,
            Activity(
                STAMP,
                [
                    news(ME, 0, b"1", b"2", acked=0),
                    news(LEFT, 0, b"a", b"d", acked=0),
                    news(OTHER, 0, b"b", b"c"),
                ],
            ),
        )
    ]


def test_a_publisher_is_not_sent_its_own_messages_again() -> None:
    machine = ready()
    machine.receive(LEFT, Activity(STAMP, [news(RIGHT, 0, b"a", b"b")]))
    machine.idle()
    assert sent(machine) == [(RIGHT, Activity(STAMP, [Entry(RIGHT, 2, [], -1)]))]

    machine.receive(LEFT, Activity(STAMP, [Entry(RIGHT, 2, [], 1)]))
    machine.idle()
    assert sent(machine) == [], "it knows that they have been round"
    assert machine.pending == {}


def test_acknowledgements_wait_for_what_comes_next_and_publications_do_not() -> None:
    machine = ready()
    machine.broadcast([b"a"])
    assert (machine.has_unsent, machine.is_urgent) == (True, False)
    machine.idle()
    machine.receive(LEFT, Activity(STAMP, [news(ME, 0, b"a")]))
    assert (machine.has_unsent, machine.is_urgent) == (True, False)
    machine.confirmed_broadcast(b"b", "tag")

    assert machine.is_urgent


def test_who_leaves_passes_on_first_what_it_has() -> None:
    machine = ready()
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))
    machine.take_effects()
    machine.leave("normal")

    assert machine.take_effects() == [
        effects.Send(RIGHT, Activity(STAMP, [news(LEFT, 0, b"a")])),
        effects.Stopped("normal"),
    ]


def test_who_leaves_passes_on_what_comes_with_its_last_lap() -> None:
    machine = ready()
    machine.broadcast([b"own"])
    machine.leave("normal")
    assert machine.phase is Phase.READY
    machine.take_effects()
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a"), Entry(ME, 1, [], -1)]))

    assert machine.take_effects()[-2:] == [
        effects.Send(RIGHT, Activity(STAMP, [news(LEFT, 0, b"a"), Entry(ME, 1, [], 0)])),
        effects.Stopped("normal"),
    ]


def test_the_dead_come_before_their_heirs_mark() -> None:
    machine = ready(group(OTHER, LEFT, ME, RIGHT))
    machine.broadcast([b"own"])
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))
    machine.down(LEFT, "killed")
    record = group(OTHER, LEFT, ME, RIGHT, dead=(LEFT,), version=4)
    machine.answered(record)

    last = sent(machine)[-1]
    marked = Entry(ME, 0, [b"own", None], -1)
    assert last == (RIGHT, Activity(record.stamp, [news(LEFT, 0, b"a"), marked]))


def test_what_the_dead_had_sent_is_acknowledged_as_far_as_it_has_come() -> None:
    record = group(OTHER, LEFT, ME, RIGHT, dead=(LEFT,))
    machine = newcomer(Limits(frame_bytes=200))
    machine.answered(record)
    machine.receive(OTHER, CatchUp(record.stamp, [], True, True))
    machine.take_effects()
    machine.receive(OTHER, Activity(record.stamp, [news(LEFT, 0, *[b"." * 36] * 5)]))

    entries = [entry for _, frame in sent(machine) for entry in frame.entries]
    assert [(len(each.bodies), each.acked) for each in entries if each.publisher == LEFT] == [
        (2, 1), (2, 3), (1, 4),
    ]  # fmt: skip


def test_a_new_right_neighbour_is_sent_the_whole_state_and_nothing_twice() -> None:
    machine = ready()
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))
    machine.broadcast([b"b"])
    machine.down(RIGHT, "killed")
    record = group(LEFT, ME, RIGHT, OTHER, dead=(RIGHT,), version=5)
    machine.answered(record)
    state = [
        Entry(RIGHT, 0, [], -1),
        news(ME, 0, b"b"),
        news(LEFT, 0, b"a"),
        Entry(OTHER, 0, [], -1),
    ]
    assert (OTHER, CatchUp(record.stamp, state, True, True)) in sent(machine)
    machine.idle()

    assert sent(machine) == []


def test_what_waits_is_sent_when_the_timer_has_run() -> None:
    machine = ready()
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))
    assert effects.StartTimer("flush", Limits().flush_s) in machine.take_effects()
    machine.flush_due()

    assert sent(machine) == [(RIGHT, Activity(STAMP, [news(LEFT, 0, b"a")]))]


def test_much_that_waits_is_sent_at_once_in_frames_of_the_limit() -> None:
    machine = ready(bounds=Limits(frame_bytes=200))
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, *[b"." * 36] * 5, acked=-1)]))

    frames_sent = [frame for _, frame in sent(machine)]
    assert [len(entry.bodies) for frame in frames_sent for entry in frame.entries] == [2, 2, 1]
    assert [entry.first for frame in frames_sent for entry in frame.entries] == [0, 2, 4]


def test_the_same_news_twice_is_delivered_once_and_passed_on_once() -> None:
    machine = ready()
    for _ in range(2):
        machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))
        machine.idle()

    found = machine.take_effects()
    assert [each for each in found if isinstance(each, effects.Deliver)] == [
        effects.Deliver(LEFT, [b"a"])
    ]
    assert len([each for each in found if isinstance(each, effects.Send)]) == 1


def test_a_publication_that_has_been_round_is_confirmed_and_acknowledged() -> None:
    machine = ready()
    machine.confirmed_broadcast(b"a", "tag")
    machine.idle()
    machine.take_effects()
    assert machine.pending == {ME: 1}
    machine.receive(LEFT, Activity(STAMP, [Entry(ME, 1, [], -1)]))
    machine.idle()

    assert machine.take_effects() == [
        effects.Confirmed(["tag"]),
        effects.Send(RIGHT, Activity(STAMP, [Entry(ME, 1, [], 0)])),
    ]
    assert machine.pending == {}
    machine.receive(LEFT, Activity(STAMP, [Entry(ME, 1, [], 0)]))
    machine.idle()
    assert machine.take_effects() == [], "the acknowledgement ends here"


def test_nothing_is_taken_from_a_member_that_is_not_the_left_neighbour() -> None:
    machine = ready()
    machine.receive(RIGHT, Activity(STAMP, [news(RIGHT, 0, b"a")]))

    assert machine.take_effects() == []


@pytest.mark.parametrize(
    ("sender", "stamp"),
    [
        pytest.param(OTHER, STAMP, id="a stranger"),
        pytest.param(LEFT, Stamp(4, 99), id="an older epoch"),
    ],
)
@pytest.mark.parametrize(
    "frame", [lambda stamp: Activity(stamp, [news(LEFT, 0, b"a")]), lambda stamp: Ask(stamp, None)]
)
def test_who_is_fenced_is_told_to_look_at_the_record(
    sender: MemberId, stamp: Stamp, frame: Callable[[Stamp], Frame]
) -> None:
    machine = ready()
    machine.receive(sender, frame(stamp))

    assert sent(machine) == [(sender, Check(STAMP))]


def test_a_check_from_a_stranger_is_not_answered() -> None:
    machine = ready()
    machine.receive(OTHER, Check(STAMP))

    assert machine.take_effects() == []


def test_a_member_that_died_is_fenced_although_its_frame_came_late() -> None:
    machine = ready()
    machine.down(LEFT, "killed")
    assert wanted(machine, effects.Transact) == [effects.Transact(MarkDead(LEFT, ME))]
    machine.answered(group(LEFT, ME, RIGHT, dead=(LEFT,), version=4))
    machine.take_effects()
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))

    assert sent(machine) == [(LEFT, Check(Stamp(5, 4)))]


def test_a_frame_of_a_newer_view_waits_for_the_record_and_so_does_all_that_comes_after() -> None:
    machine = ready()
    newer = group(LEFT, ME, RIGHT, OTHER, version=4)
    machine.receive(LEFT, Activity(newer.stamp, [news(OTHER, 0, b"a")]))
    machine.receive(LEFT, Activity(newer.stamp, [news(OTHER, 1, b"b")]))
    machine.down(RIGHT, "killed")
    assert machine.take_effects() == [effects.Transact(Read())]
    machine.answered(newer)

    done = machine.take_effects()
    assert [
        each for each in done if isinstance(each, effects.MembersChanged | effects.Deliver)
    ] == [
        effects.MembersChanged(frozenset({OTHER}), frozenset()),
        effects.Deliver(OTHER, [b"a"]),
        effects.Deliver(OTHER, [b"b"]),
    ]
    assert effects.Transact(MarkDead(RIGHT, ME)) in done


def test_a_record_that_is_older_than_a_frame_is_read_again() -> None:
    machine = ready()
    machine.receive(LEFT, Check(Stamp(5, 4)))
    machine.answered(group(LEFT, ME, RIGHT))
    assert wanted(machine, effects.StartTimer) == [effects.StartTimer("retry", Limits().retry_s)]
    machine.retry()
    assert wanted(machine, effects.Transact) == [effects.Transact(Read())]
    machine.answered(group(LEFT, ME, version=4))

    assert machine.view is not None
    assert machine.view.right == LEFT


@pytest.mark.parametrize("older", [Stamp(5, 8), Stamp(4, 99)])
def test_a_record_older_than_the_view_stops_the_member(older: Stamp) -> None:
    """The store was restored from a backup; what this member has passed on may be of members it does not list."""
    machine = ready()
    machine.down(RIGHT, "killed")
    machine.down(LEFT, "killed")
    machine.answered(group(LEFT, ME, RIGHT, dead=(RIGHT,), version=9))
    machine.take_effects()
    machine.answered(group(LEFT, ME, RIGHT, version=older.version, epoch=older.epoch))

    assert machine.take_effects() == [effects.Stopped(LOST)]


@pytest.mark.parametrize(
    "record",
    [
        None,
        group(LEFT, RIGHT, version=4),
        group(LEFT, ME, dead=(ME,), version=4),
        LostMembershipError(),
    ],
)
def test_a_member_that_the_record_does_not_list_alive_stops(record: Any) -> None:
    machine = ready()
    machine.receive(LEFT, Check(Stamp(5, 4)))
    machine.take_effects()
    machine.answered(record)

    assert machine.take_effects() == [effects.Stopped(LOST)]
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a")]))
    machine.down(LEFT, "killed")
    machine.answered(group(LEFT, ME, RIGHT))
    machine.idle()
    assert machine.take_effects() == [], "nothing comes after its end"


def test_a_member_with_a_new_left_neighbour_takes_only_the_catch_up_from_it() -> None:
    machine = ready(group(OTHER, LEFT, ME, RIGHT))
    machine.down(LEFT, "killed")
    record = group(OTHER, LEFT, ME, RIGHT, dead=(LEFT,), version=4)
    machine.answered(record)
    assert (OTHER, Ask(record.stamp, None)) in sent(machine)

    machine.receive(OTHER, Activity(record.stamp, [news(OTHER, 3, b"d")]))
    assert machine.take_effects() == []
    state = [news(LEFT, 0, b"a"), news(OTHER, 2, b"c", acked=-1)._replace(first=0)]
    machine.receive(OTHER, CatchUp(record.stamp, state, True, True))

    assert wanted(machine, effects.Deliver) == [
        effects.Deliver(LEFT, [b"a"]),
        effects.Deliver(OTHER, [b"c"]),
    ]


def test_a_right_neighbour_without_a_state_gets_it_when_it_asks() -> None:
    machine = ready()
    machine.receive(RIGHT, Ask(STAMP, None))
    assert machine.take_effects() == [], "it was sent in this view"
    machine.receive(RIGHT, Ask(STAMP, RIGHT))

    assert [(to, type(frame)) for to, frame in sent(machine)] == [(RIGHT, CatchUp)]


def test_a_catch_up_of_which_the_end_is_lost_has_the_dead_and_not_their_heirs_mark() -> None:
    machine = ready(group(OTHER, LEFT, ME, RIGHT), Limits(frame_bytes=1))
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a"), news(OTHER, 0, b"b")]))
    machine.down(LEFT, "killed")
    record = group(OTHER, LEFT, ME, RIGHT, dead=(LEFT,), version=4)
    machine.answered(record)
    machine.take_effects()
    machine.receive(RIGHT, Ask(record.stamp, RIGHT))

    first, *others = [frame.entries for _, frame in sent(machine) if isinstance(frame, CatchUp)]
    assert first == [news(LEFT, 0, b"a")]
    assert [Entry(ME, 0, [None], -1)] in others


@pytest.mark.parametrize("state", ["waiting", "leaving"])
def test_who_has_no_state_or_leaves_admits_nobody(state: str) -> None:
    if state == "waiting":
        machine = newcomer()
        machine.answered(group(LEFT, ME, RIGHT))
    else:
        machine = ready()
        machine.broadcast([b"a"])
        machine.leave("normal")
    machine.take_effects()
    machine.receive(OTHER, JoinRequest(STAMP))

    assert machine.take_effects() == [effects.Send(OTHER, NotReady(STAMP))]


def test_a_newcomer_that_the_record_has_no_place_for_must_ask_again() -> None:
    machine = ready()
    machine.receive(OTHER, JoinRequest(STAMP))
    assert machine.take_effects() == [effects.Transact(Add(OTHER, ME))]
    machine.answered(group(LEFT, ME, RIGHT))

    assert machine.take_effects() == [effects.Send(OTHER, NotReady(STAMP))]


def test_a_newcomer_that_is_refused_asks_ever_more_rarely() -> None:
    machine, pauses = newcomer(), []
    for _ in range(8):
        machine.answered(group(LEFT))
        machine.receive(LEFT, NotReady(STAMP))
        pauses += [each.delay_s for each in wanted(machine, effects.StartTimer)]
        machine.retry()

    assert pauses == [Limits().retry_s * times for times in (1, 2, 4, 8, 16, 32, 32, 32)]


def test_a_member_that_forgets_its_group_works_on_until_the_record_is_deleted() -> None:
    machine = ready()
    machine.forget()
    assert machine.take_effects() == [effects.Transact(Forget(STAMP.epoch))]
    machine.broadcast([b"a"])
    assert effects.Deliver(ME, [b"a"]) in machine.take_effects()
    machine.answered(None)

    assert machine.take_effects() == [effects.Stopped(FORGOTTEN)]
    with pytest.raises(NotJoinedError, match="stopped"):
        machine.forget()


def test_a_member_whose_group_has_begun_anew_forgets_only_its_own() -> None:
    machine = ready()
    machine.forget()
    machine.take_effects()
    machine.answered(group(OTHER, epoch=6))

    assert machine.take_effects() == [effects.Stopped(FORGOTTEN)]


@pytest.mark.parametrize("faults", [0.0, 0.4])
def test_all_members_of_a_forgotten_group_end_although_the_store_fails_often(
    seed: int, faults: float
) -> None:
    for number in range(20):
        ring = SimulatedRing(f"{seed} {number}")
        forgetting, *_ = ring.started(1 + number % 4)
        ring.store.faults = faults
        joining = ring.start("joining")
        ring.clock.jump(ring.random.random() * 0.05)
        members = list(ring.members.values())
        forgetting.forget()
        for each in ring.ready():
            each.broadcast(b"%s" % str(each.me).encode())
        ring.clock.jump(20.0)

        ended = [each.reason for each in members if each is not joining]
        assert ended.count(FORGOTTEN) == 1
        assert set(ended) <= {FORGOTTEN, LOST}
        assert joining.reason in {None, LOST}, "it came late, and has begun the group anew"
        assert (ring.record is None) is (joining.reason is not None)
        assert ring.violations() == []


def test_the_heir_acknowledges_for_the_dead_and_erases_it_when_its_mark_is_back() -> None:
    machine = ready(group(OTHER, LEFT, ME, RIGHT))
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 0, b"a", b"b")]))
    machine.idle()
    machine.down(LEFT, "killed")
    machine.take_effects()
    record = group(OTHER, LEFT, ME, RIGHT, dead=(LEFT,), version=4)
    machine.answered(record)
    assert (RIGHT, Activity(record.stamp, [Entry(ME, 0, [None], -1)])) in sent(machine)

    machine.receive(OTHER, CatchUp(record.stamp, [news(LEFT, 0, b"a")], True, True))
    machine.idle()
    assert sent(machine) == [(RIGHT, Activity(record.stamp, [Entry(LEFT, 2, [], 0)]))]
    machine.receive(OTHER, Activity(record.stamp, [news(LEFT, 1, b"b"), Entry(ME, 0, [None], -1)]))
    done = machine.take_effects()
    assert effects.Transact(Erase(frozenset({LEFT}), ME)) in done
    assert not [each for each in done if isinstance(each, effects.Deliver)]
    machine.answered(group(OTHER, ME, RIGHT, version=5))

    assert effects.MembersChanged(frozenset(), frozenset({LEFT})) in machine.take_effects()
    machine.receive(OTHER, Activity(Stamp(5, 5), [Entry(LEFT, 2, [], 1)]))
    assert machine.take_effects() == [], "the last acknowledgement of the dead ends"


def test_a_member_does_not_believe_that_it_published_what_it_never_did() -> None:
    machine = ready()
    with pytest.raises(GmError, match="of its own that it never made"):
        machine.receive(LEFT, Activity(STAMP, [news(ME, 0, b"a")]))


@pytest.mark.parametrize("way", ["not joined", "leaving", "stopped"])
def test_who_cannot_broadcast_says_so(way: str) -> None:
    machine = newcomer() if way == "not joined" else ready()
    if way == "leaving":
        machine.broadcast([b"a"])
        machine.leave("normal")
    elif way == "stopped":
        machine.leave("normal")

    with pytest.raises(NotJoinedError, match="can broadcast from"):
        machine.broadcast([b"b"])
    with pytest.raises(NotJoinedError, match="can broadcast from"):
        machine.confirmed_broadcast(b"b", 1)


def test_a_message_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "BODY_BYTES_MAX", 3)
    machine = ready()
    with pytest.raises(GmError, match="message of 4 bytes, limit 3"):
        machine.broadcast([b"abc", b"abcd"])
    assert machine.take_effects() == []


def test_the_bound_of_a_message_lets_messages_of_amqp_through() -> None:
    assert limits.BODY_BYTES_MAX > 128 * 1024 * 1024
    assert frames.weight([b"", None, b"abc"]) == 3 + 3 * frames.BODY_OVERHEAD_BYTES


# Flush, bounds, the end.


def test_publications_wait_for_a_quiet_moment_or_25_ms() -> None:
    machine = ready()
    machine.broadcast([b"a"])
    machine.broadcast([b"b"])
    assert machine.take_effects() == [
        effects.Deliver(ME, [b"a"]),
        effects.StartTimer("flush", 0.025),
        effects.Deliver(ME, [b"b"]),
    ]
    assert machine.has_unsent
    machine.idle()
    assert sent(machine) == [(RIGHT, Activity(STAMP, [Entry(ME, 0, [b"a", b"b"], -1)]))]

    machine.broadcast([b"c"])
    assert wanted(machine, effects.StartTimer) == [], "the timer runs already"
    machine.flush_due()
    assert sent(machine) == [(RIGHT, Activity(STAMP, [Entry(ME, 2, [b"c"], -1)]))]
    machine.broadcast([b"d"])
    assert len(wanted(machine, effects.StartTimer)) == 1


def test_a_frame_that_is_full_does_not_wait() -> None:
    machine = ready()
    machine.broadcast([b"x" * 600_000, b"y" * 600_000])

    assert [len(frame.entries[0].bodies) for _, frame in sent(machine)] == [1, 1]  # type: ignore[union-attr]


def test_a_publisher_with_too_much_under_way_is_asked_to_stop_until_half_is_left() -> None:
    machine = Member(ME, Random(1), Limits(pending_bytes=1000))
    machine.start()
    machine.answered(group(LEFT, ME, RIGHT))
    machine.receive(LEFT, CatchUp(STAMP, [], True, True))
    machine.broadcast([b"x" * 400])
    assert wanted(machine, effects.Flow) == []
    machine.broadcast([b"y" * 500])
    assert wanted(machine, effects.Flow) == [effects.Flow(True)]
    machine.broadcast([b"z"])
    machine.idle()
    assert wanted(machine, effects.Flow) == []
    assert machine.is_blocked

    machine.receive(LEFT, Activity(STAMP, [news(ME, 0, b"x" * 400)]))
    assert machine.is_blocked
    machine.receive(LEFT, Activity(STAMP, [news(ME, 1, b"y" * 500)]))
    assert wanted(machine, effects.Flow) == [effects.Flow(False)]


def test_a_state_that_is_large_travels_in_parts(seed: int) -> None:
    ring = SimulatedRing(seed, Limits(frame_bytes=300), idleness=1.0)
    one, *_ = ring.started(3)
    ring.network.frames = 0
    for number in range(40):
        one.broadcast(b"%03d" % number)
    newcomer = ring.start("n9")
    ring.clock.jump(SOON_S)
    one.confirmed_broadcast(b"last")
    ring.clock.jump(SOON_S)

    assert newcomer.is_ready
    assert ring.violations() == []
    assert_at_rest(ring)


def test_who_leaves_stays_until_its_messages_have_been_round(ring: SimulatedRing) -> None:
    (one, two, three), heard = joined(ring, 3)
    for number in range(30):
        one.broadcast(b"%d" % number)
    one.leave()
    assert one.reason is None
    ring.clock.jump(SOON_S)

    assert one.reason == "normal"
    assert heard[1].messages == heard[2].messages == [b"%d" % number for number in range(30)]
    assert_at_rest(ring)
    assert {two.me, three.me} == set(ring.members)


def test_a_callback_may_stop_the_member_and_hears_nothing_more(ring: SimulatedRing) -> None:
    (one, _), _ = joined(ring, 2)
    stopping = Heard(lambda message: Stop("enough") if message == b"2" else None)
    ring.start("n9", stopping)
    ring.clock.jump(SOON_S)
    for number in range(1, 5):
        one.broadcast(b"%d" % number)
    ring.clock.jump(SOON_S)

    assert stopping.messages == [b"1", b"2"]
    assert stopping.calls[-1] == ("handle_terminate", "enough")
    assert_at_rest(ring)


def test_a_callback_may_become_another(ring: SimulatedRing) -> None:
    (one, _), _ = joined(ring, 2)
    after = Heard()
    before = Heard(lambda message: Become(after) if message == b"2" else None)
    ring.start("n9", before)
    ring.clock.jump(SOON_S)
    for number in range(1, 5):
        one.broadcast(b"%d" % number)
    ring.clock.jump(SOON_S)

    assert (before.messages, after.messages) == ([b"1", b"2"], [b"3", b"4"])


def test_a_callback_that_answers_nonsense_is_an_error(ring: SimulatedRing) -> None:
    (one,), (heard,) = joined(ring, 1)
    heard.answer = lambda _: "stop"  # type: ignore[assignment, return-value]
    with pytest.raises(TypeError, match="it must be None, Stop or Become"):
        one.broadcast(b"1")


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_message_that_ends_all_reaches_all_and_changes_nothing_in_the_record(
    ring: SimulatedRing, count: int
) -> None:
    heard = [
        Heard(lambda message: Stop(RING_SHUTDOWN) if message == b"end" else None)
        for _ in range(count)
    ]
    members = []
    for number, each in enumerate(heard):
        members.append(ring.start(f"n{number}", each))
        ring.clock.jump(SOON_S)
    version = ring.record
    for each in members[1:]:
        each.broadcast(b"x")
    members[0].broadcast(b"end")
    ring.clock.jump(SOON_S)

    assert ring.members == {}
    assert all(each.reason == RING_SHUTDOWN for each in members)
    assert all(b"end" in each.messages for each in heard)
    assert ring.record == version


# Deaths, one at a time.


@pytest.mark.parametrize("count", [2, 3, 4, 6])
@pytest.mark.parametrize("position", [0, 1, -1])
def test_a_death_under_load_loses_nothing_of_the_others(
    seed: int, count: int, position: int
) -> None:
    ring = SimulatedRing(seed)
    ring.started(count)
    members = in_ring_order(ring, next(iter(ring.members.values())))
    for number in range(50):
        for each in list(ring.members.values()):
            each.broadcast(b"%s %d" % (str(each.me).encode(), number))
        if number == 25:
            members[position].crash()
        ring.clock.jump(0.002)
    ring.clock.jump(SOON_S)

    assert ring.violations() == []
    assert_at_rest(ring)


@pytest.mark.parametrize("pause_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04])
def test_the_heir_may_die_too(seed: int, pause_s: float) -> None:
    ring = SimulatedRing(seed)
    first, second, third, fourth = in_ring_order(ring, ring.started(4)[0])
    for number in range(10):
        first.broadcast(b"%d" % number)
    ring.clock.jump(0.005)
    first.crash()
    ring.clock.jump(pause_s)
    second.crash()
    ring.clock.jump(SOON_S)

    assert ring.violations() == []
    assert set(ring.members) == {third.me, fourth.me}
    assert_at_rest(ring)


def test_when_all_others_die_the_last_confirms_and_reports_them(ring: SimulatedRing) -> None:
    (one, two, three), (heard, *_) = joined(ring, 3)
    one.confirmed_broadcast(b"1")
    two.crash()
    three.crash()
    ring.clock.jump(SOON_S)

    assert ring.history.counts()["confirmed"] == 1
    deaths = [call[2] for call in heard.calls if call[0] == "members_changed"]
    assert frozenset().union(*deaths) == {two.me, three.me}
    one.confirmed_broadcast(b"2")
    assert ring.history.counts()["confirmed"] == 2
    assert_at_rest(ring)


def test_a_cut_between_neighbours_ends_one_of_them(ring: SimulatedRing) -> None:
    ring.started(4)
    one, two, *_ = in_ring_order(ring, next(iter(ring.members.values())))
    ring.network.cut(one.me.node, two.me.node)
    ring.clock.jump(SOON_S)

    assert [each.reason for each in (one, two)].count(LOST) == 1
    assert len(ring.ready()) == 3
    assert_at_rest(ring)


def test_without_the_store_a_ring_works_on_and_waits_with_the_dead(ring: SimulatedRing) -> None:
    (one, two, three), heard = joined(ring, 3)
    ring.store.is_up = False
    one.confirmed_broadcast(b"1")
    ring.clock.jump(SOON_S)
    assert ring.history.counts()["confirmed"] == 1

    three.crash()
    two.confirmed_broadcast(b"2")
    ring.clock.jump(5.0)
    assert ring.history.counts()["confirmed"] == 1

    ring.store.is_up = True
    ring.clock.jump(2.0)
    assert ring.history.counts()["confirmed"] == 2
    assert heard[0].messages == [b"1", b"2"]
    assert_at_rest(ring)


def test_views_follow_the_record_when_three_join_and_one_dies_at_once(seed: int) -> None:
    for round_number in range(50):
        ring = SimulatedRing(f"{seed} {round_number}")
        victim, _ = ring.started(2)
        newcomers: list[SimulatedMember] = []

        def start(ring: SimulatedRing = ring, newcomers: list[Any] = newcomers) -> None:
            newcomers.append(ring.start(f"m{len(newcomers)}"))

        steps: list[Callable[[], None]] = [victim.crash, start, start, start]
        ring.random.shuffle(steps)
        for step in steps:
            step()
            ring.clock.jump(ring.random.random() * 0.016)
        ring.clock.jump(SOON_S)

        assert {each.reason for each in newcomers} <= {None, LOST}, "LOST: it may have been buried"
        assert len(ring.ready()) == len(ring.members) >= 3
        assert_at_rest(ring)


def test_a_forgotten_group_is_found_out_by_the_next_change(ring: SimulatedRing) -> None:
    joined(ring, 2)
    stored = ring.store.memory.current(NAME)
    ring.store.memory.write(NAME, None, stored.revision, lambda _: None)
    late = ring.start("n9")
    ring.clock.jump(SOON_S)

    assert late.is_ready
    assert ring.store.memory.current(NAME) != Stored(None, 0)
    assert late.member.view is not None
    assert late.member.view.alive == (late.me,)


def test_a_frame_for_a_newcomer_waits_until_it_has_read_the_record() -> None:
    machine = newcomer()
    record = group(LEFT, ME, RIGHT)
    machine.receive(LEFT, CatchUp(STAMP, [news(LEFT, 0, b"a")], True, True))
    machine.receive(LEFT, Activity(STAMP, [news(LEFT, 1, b"b")]))
    machine.receive(OTHER, Ask(STAMP, OTHER))
    machine.receive(LEFT, Welcome(STAMP))
    assert machine.take_effects() == [effects.Transact(Read())], "only that of its start"
    machine.answered(record)
    done = machine.take_effects()

    assert effects.Joined(frozenset({LEFT, ME, RIGHT})) in done
    assert [each for each in done if isinstance(each, effects.Deliver)] == [
        effects.Deliver(LEFT, [b"b"])
    ]
    assert effects.Send(OTHER, Check(STAMP)) in done, "who is not in the record is told"


def test_a_member_that_may_have_been_buried_does_not_come_back() -> None:
    machine = newcomer()
    machine.answered(group(LEFT, version=3))
    machine.down(LEFT, NOCONNECTION)
    machine.take_effects()
    machine.answered(group(LEFT, OTHER, version=6))

    assert machine.take_effects() == [effects.Stopped(LOST)]


def test_a_first_member_creates_its_group() -> None:
    machine = newcomer()
    machine.answered(None)
    assert effects.Transact(Create(ME)) in machine.take_effects()
    machine.answered(group(ME, version=0))

    assert wanted(machine, effects.Joined) == [effects.Joined(frozenset({ME}))]
