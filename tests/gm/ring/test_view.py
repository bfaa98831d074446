"""The ring as a member sees it.

Tests: gm/ring/streams.py
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.core.errors import ConfigError
from leveret.gm.records.group import Entry, Group, LostMembershipError, MemberId, Stamp
from leveret.gm.ring.limits import Limits
from leveret.gm.ring.streams import GapError, Stream
from leveret.gm.ring.view import View


def ring(text: str) -> Group:
    """Make a record: capitals are alive."""
    return Group(1, 1, tuple(Entry(named(x), x.isupper()) for x in text))


def named(letter: str) -> MemberId:
    return MemberId("n", ord(letter.lower()))


RINGS = (
    st.text("ab", min_size=1, max_size=8)
    .map(
        lambda text: "".join(
            chr(ord("a") + at).upper() if letter == "a" else chr(ord("a") + at)
            for at, letter in enumerate(text)
        )
    )
    .filter(lambda text: text.lower() != text)
)


@given(RINGS)
def test_each_dead_member_is_inherited_by_the_next_one_alive_to_its_right(text: str) -> None:
    heirs = {
        alias: letter
        for letter in text
        if letter.isupper()
        for alias in View(ring(text), named(letter)).aliases
    }
    for at, letter in enumerate(text):
        if letter.islower():
            right = next(each for each in text[at:] + text[:at] if each.isupper())
            assert heirs.pop(named(letter)) == right
    assert heirs == {}


@given(RINGS)
def test_each_member_is_the_left_of_its_right(text: str) -> None:
    views = {named(x): View(ring(text), named(x)) for x in text if x.isupper()}

    for member, view in views.items():
        assert views[view.right].left == member
        assert view.known == {named(letter) for letter in text}
        assert view.stamp == Stamp(1, 1)


def test_a_member_alone_is_its_own_neighbour() -> None:
    view = View(ring("aBc"), named("b"))

    assert (view.left, view.right) == (named("b"), named("b"))
    assert view.aliases == {named("a"), named("c")}


@pytest.mark.parametrize("letter", ["b", "z"])
def test_who_is_not_alive_in_the_record_has_no_view(letter: str) -> None:
    with pytest.raises(LostMembershipError, match="not alive in version 1"):
        View(ring("Ab"), named(letter))


def stream(*bodies: bytes) -> Stream:
    made = Stream(named("a"))
    made.add(0, list(bodies))
    return made


def test_what_has_come_before_is_not_new() -> None:
    kept = stream(b"0", b"1")

    assert kept.add(1, [b"1", b"2", b"3"]) == [b"2", b"3"]
    assert kept.add(0, [b"0"]) == []
    assert (kept.last, kept.acked) == (3, -1)


def test_a_gap_is_an_error() -> None:
    with pytest.raises(GapError, match=r"publication 3 of .* came after 1"):
        stream(b"0", b"1").add(3, [b"3"])
    with pytest.raises(GapError, match="only 1 came"):
        stream(b"0", b"1").ack(2)
    with pytest.raises(GapError, match="begins with 3"):
        Stream(named("a")).start(3, [b"3"], 1)


def test_what_has_been_round_is_dropped_and_its_weight_with_it() -> None:
    kept = stream(b"0" * 100, b"1", b"2")

    assert kept.ack(1)
    assert not kept.ack(0)
    assert not kept.is_empty
    assert kept.size_bytes == 65
    assert kept.ack(2)
    assert kept.is_empty
    assert kept.size_bytes == 0


def test_a_state_is_cut_into_runs_of_the_size_that_is_wanted() -> None:
    kept = stream(b"0", b"1" * 1000, b"2", b"3")

    assert list(kept.chunks(200)) == [
        (named("a"), 0, [b"0"], -1),
        (named("a"), 1, [b"1" * 1000], -1),
        (named("a"), 2, [b"2", b"3"], -1),
    ]
    assert list(Stream(named("a")).chunks(200)) == [(named("a"), 0, [], -1)]


@pytest.mark.parametrize("name", ["flush_s", "pending_bytes", "frame_bytes", "retry_s"])
def test_a_bound_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0, it must be above 0"):
        Limits(**{name: 0})
