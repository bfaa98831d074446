"""The checker of histories: it accepts what the guarantees allow, and names the one that is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.gm.records.group import MemberId
from rigs.gm.history import RingHistory

A, B, C = (MemberId("n", number) for number in (1, 2, 3))
ALL = (A, B, C)


class Script(RingHistory):
    """A history in which three members have joined."""

    def __init__(self) -> None:
        super().__init__()
        for member in ALL:
            self.joined(member, ALL)

    def publish(self, publisher: MemberId, message: bytes, *receivers: MemberId) -> None:
        self.published(publisher, message)
        for member in (publisher, *receivers):
            self.delivered(member, publisher, message)


def test_messages_that_all_have_in_order_are_right() -> None:
    history = Script()
    history.publish(A, b"1", B, C)
    history.publish(A, b"2", C, B)
    history.confirmed(A, b"2", ALL)

    assert history.violations(ALL) == []


def test_two_publishers_may_be_seen_in_any_order() -> None:
    history = Script()
    history.publish(A, b"1")
    history.publish(B, b"2")
    for receiver, publisher, message in ((C, B, b"2"), (C, A, b"1"), (A, B, b"2"), (B, A, b"1")):
        history.delivered(receiver, publisher, message)

    assert history.violations(ALL) == []


def test_a_message_that_died_with_its_publisher_is_nobodys_loss() -> None:
    history = Script()
    history.publish(A, b"1")
    history.ended(A)
    history.members_changed(B, (), {A})
    history.members_changed(C, (), {A})

    assert history.violations((B, C)) == []


def test_a_newcomer_need_not_have_what_was_published_before_it_joined() -> None:
    late = MemberId("n", 4)
    history = Script()
    history.publish(A, b"1", B, C)
    history.joined(late, (*ALL, late))
    history.publish(A, b"2", B, C, late)

    assert history.violations((*ALL, late)) == []


def out_of_order(history: Script) -> None:
    history.publish(A, b"1", C)
    history.publish(A, b"2", C)
    history.delivered(B, A, b"2")
    history.delivered(B, A, b"1")


def twice(history: Script) -> None:
    history.publish(A, b"1", B, C, C)


def missing(history: Script) -> None:
    history.publish(A, b"1", B, C)
    history.publish(A, b"2", B)
    history.publish(A, b"3", B, C)


def begins_too_late(history: Script) -> None:
    history.publish(A, b"1", B)
    history.publish(A, b"2", B, C)


def never_published(history: Script) -> None:
    history.delivered(B, A, b"1")


def of_another(history: Script) -> None:
    history.publish(A, b"1", B, C)
    history.delivered(C, B, b"1")


def lost_by_one(history: Script) -> None:
    history.publish(A, b"1", B)


def lost_at_the_end(history: Script) -> None:
    history.publish(A, b"1", B, C)
    history.publish(A, b"2", B)


def confirmed_too_early(history: Script) -> None:
    history.publish(A, b"1", B)
    history.confirmed(A, b"1", ALL)
    history.delivered(C, A, b"1")


def confirmed_by_another(history: Script) -> None:
    history.publish(A, b"1", B, C)
    history.confirmed(B, b"1", ALL)


def dead_that_speaks(history: Script) -> None:
    history.publish(A, b"1", B)
    history.members_changed(C, (), {A})
    history.delivered(C, A, b"1")


def death_before_the_last_message(history: Script) -> None:
    history.publish(A, b"1", B)
    history.members_changed(C, (), {A})


def unknown_publisher(history: Script) -> None:
    late = MemberId("n", 4)
    history.joined(late, (*ALL, late))
    history.members_changed(A, {late}, ())
    history.members_changed(B, {late}, ())
    history.publish(late, b"1", A, B, C)


def death_without_birth(history: Script) -> None:
    history.members_changed(A, (), {MemberId("n", 4)})


def born_twice(history: Script) -> None:
    history.members_changed(A, {B}, ())


def joins_twice(history: Script) -> None:
    history.joined(A, ALL)


def joins_without_itself(history: Script) -> None:
    history.joined(MemberId("n", 4), ALL)


def goes_on_after_its_end(history: Script) -> None:
    history.ended(A)
    history.members_changed(A, (), {B})


def had_not_joined(history: Script) -> None:
    history.publish(A, b"1", B, C, MemberId("n", 4))


@pytest.mark.parametrize(
    ("rule", "act"),
    [
        ("G1", out_of_order),
        ("G1", twice),
        ("G1", missing),
        ("G1", begins_too_late),
        ("G1", never_published),
        ("G1", of_another),
        ("G2", lost_by_one),
        ("G2", lost_at_the_end),
        ("G3", confirmed_too_early),
        ("G3", confirmed_by_another),
        ("G4", dead_that_speaks),
        ("G4", death_before_the_last_message),
        ("G5", unknown_publisher),
        ("G5", death_without_birth),
        ("G5", born_twice),
        ("G5", joins_twice),
        ("G5", joins_without_itself),
        ("G5", goes_on_after_its_end),
        ("G5", had_not_joined),
    ],
)
def test_a_broken_guarantee_is_named(rule: str, act: Callable[[Script], None]) -> None:
    history = Script()
    act(history)

    assert any(found.startswith(rule) for found in history.violations(ALL))
