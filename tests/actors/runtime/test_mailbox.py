"""The order of mail in a mailbox.

Tests: actors/runtime/inbox.py
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.scheduler import DRAIN_MAILS, TURN_MAILS
from leveret.actors.runtime.signals import Crash
from leveret.core.errors import ActorError
from leveret.testing.virtual_clock import VirtualClock


class Batch:
    def __init__(self, *items: Any, level: int = 0) -> None:
        self.items = list(items)
        self.level = level

    def absorb(self, later: object) -> bool:
        if type(later) is not Batch or later.level != self.level:
            return False
        self.items += later.items
        return True


class Sorter(OtpActor):
    def init(self, seen: list[Any]) -> None:
        self.seen = seen

    def prioritise(self, message: Any) -> int:
        return message.level if type(message) is Batch else message[0]

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self.seen.append(message.items if type(message) is Batch else message)


def test_the_last_waiting_mail_may_absorb_the_next(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(log_class, seen)

    for message in (Batch(1), Batch(2), "between", Batch(3), Batch(4), Batch(5, level=1)):
        runtime.send(ref, message)
    runtime.run_until_idle()

    assert [getattr(mail, "items", mail) for mail in seen] == [[1, 2], "between", [3, 4], [5]]


def test_a_mail_that_is_being_handled_absorbs_nothing(runtime: Runtime) -> None:
    seen: list[Any] = []

    class Echo(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            if message.items == [1]:
                self.post(self.ref, Batch(2))
            seen.append(list(message.items))

    runtime.send(runtime.spawn(Echo), Batch(1))
    runtime.run_until_idle()

    assert seen == [[1], [2]]


def test_higher_levels_go_first_and_merge_only_within_their_level(runtime: Runtime) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(Sorter, seen)

    for message in ((1, "a"), Batch(1), (9, "b"), Batch(2), (1, "c"), Batch(3, level=9)):
        runtime.send(ref, message)
    runtime.run_until_idle()

    assert seen == [(9, "b"), [3], (1, "a"), (1, "c"), [1, 2]]


def test_prioritise_that_fails_ends_the_actor(runtime: Runtime) -> None:
    ref = runtime.spawn(Sorter, [])
    reasons: list[Any] = []
    runtime.watch(ref, reasons.append)

    runtime.send(ref, 17)
    runtime.send(ref, 18)  # a single mail is not asked for its priority
    runtime.run_until_idle()

    assert [reason.kind for reason in reasons] == [TypeError]


@given(
    sends=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=60),
    drain_every=st.integers(1, 20),
)
def test_order_holds_per_pair_and_level_whatever_is_sent(
    sends: list[tuple[int, int, bool]], drain_every: int
) -> None:
    runtime = Runtime(clock=VirtualClock())
    by_level: dict[Any, list[int]] = defaultdict(list)
    plain: dict[Any, list[int]] = defaultdict(list)

    class Levels(OtpActor):
        def prioritise(self, message: Any) -> int:
            return message.level if type(message) is Batch else message[1]

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            for who, level, number in message.items if type(message) is Batch else [message]:
                by_level[who, level].append(number)

    class Plain(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            for who, _, number in message.items if type(message) is Batch else [message]:
                plain[who].append(number)

    levels, receiver = runtime.spawn(Levels), runtime.spawn(Plain)
    for number, (who, level, is_batch) in enumerate(sends):
        item = (who, level, number)
        for to in (levels, receiver):
            runtime.send(to, Batch(item, level=level) if is_batch else item)
        if number % drain_every == 0:
            runtime.run_until_idle()
    runtime.run_until_idle()

    assert sum(map(len, plain.values())) == sum(map(len, by_level.values())) == len(sends)
    for numbers in (*plain.values(), *by_level.values()):
        assert numbers == sorted(numbers)


class Counts(OtpActor):
    """Notes its name for each mail."""

    def init(self, name: str, order: list[str]) -> None:
        self.name = name
        self.order = order

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        self.order.append(self.name)


class CountsUnsorted(Counts):
    """The same, with priorities that these mails do not have."""

    unsorted = frozenset({str})

    def prioritise(self, message: Any) -> int:
        return 0


@pytest.mark.parametrize("kind", [Counts, CountsUnsorted])
def test_a_turn_is_bounded_so_that_others_get_theirs(runtime: Runtime, kind: type[Counts]) -> None:
    order: list[str] = []
    busy, other = (runtime.spawn(kind, name, order) for name in ("busy", "other"))
    for _ in range(TURN_MAILS + 50):
        runtime.send(busy, "mail")
    runtime.send(other, "mail")
    runtime.run_until_idle()

    assert order == ["busy"] * TURN_MAILS + ["other"] + ["busy"] * 50


def test_a_drain_is_bounded_and_what_is_left_gets_another(runtime: Runtime) -> None:
    class Forever(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            self.post(self.ref, message)

    runtime.send(runtime.spawn(Forever), "on and on")

    runtime.drain()

    assert DRAIN_MAILS <= runtime.mails < 2 * (DRAIN_MAILS + TURN_MAILS)
    assert not runtime.is_idle


async def test_one_call_soon_serves_any_number_of_mails() -> None:
    import asyncio

    seen: list[Any] = []
    runtime = Runtime()

    class Ring(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            seen.append(message)
            if message:
                self.post(self.ref, message - 1)

    refs = [runtime.spawn(Ring) for _ in range(10)]
    for ref in refs:
        runtime.send(ref, 5)
    assert seen == []
    await asyncio.sleep(0)

    assert len(seen) == 60
    assert runtime.drains == 1
    await runtime.shutdown()


async def test_a_drain_by_hand_takes_the_place_of_the_one_on_its_way() -> None:
    import asyncio

    runtime = Runtime()
    runtime.send(runtime.spawn(OtpActor, name="x"), "unknown message, so it dies")
    runtime.run_until_idle()
    assert runtime.drains == 1
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert runtime.drains == 1
    assert runtime.actor_count == 0


def test_after_drain_runs_once_after_all_mail_and_survives_its_own_failures(
    runtime: Runtime, caplog: Any
) -> None:
    order: list[str] = []

    class Writer(OtpActor):
        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            order.append(message)
            if message == "first":
                self.runtime.after_drain(lambda: 1 / 0)
                self.runtime.after_drain(lambda: order.append("flush"))
                self.post(self.ref, "second")

    runtime.send(runtime.spawn(Writer), "first")
    runtime.run_until_idle()
    runtime.run_until_idle()

    assert order == ["first", "second", "flush"]
    assert "callback after a drain failed" in caplog.text


def test_what_a_callback_after_the_drain_sends_or_registers_is_for_the_next(
    runtime: Runtime, log_class: Any
) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(log_class, seen)

    def callback() -> None:
        runtime.send(ref, "from the callback")
        runtime.after_drain(lambda: seen.append("next"))

    runtime.after_drain(callback)
    runtime.drain()
    assert seen == []
    runtime.drain()

    assert seen == ["from the callback", "next"]
    assert runtime.is_idle


def test_a_suspended_actors_mail_waits_but_exit_signals_act(
    runtime: Runtime, mortal_class: Any
) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(mortal_class, seen)

    runtime.send(ref, "queued before")
    runtime.suspend(ref)
    runtime.send(ref, "sent meanwhile")
    runtime.run_until_idle()
    assert seen == []
    runtime.resume(ref)
    runtime.run_until_idle()
    assert seen == ["queued before", "sent meanwhile"]

    runtime.suspend(ref)
    runtime.exit(ref, "boom")
    runtime.run_until_idle()
    assert not ref.is_alive
    runtime.suspend(ref)
    runtime.resume(ref)


def test_run_as_is_a_turn_of_the_actor(runtime: Runtime, mortal_class: Any) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(mortal_class, seen)
    reasons: list[object] = []
    runtime.watch(ref, reasons.append)

    runtime.run_as(ref, seen.append, "data")
    assert seen == ["data"]
    assert ref.is_alive
    runtime.run_as(ref, int, "x")

    assert reasons == [Crash(ValueError("invalid literal for int() with base 10: 'x'"))]
    runtime.run_as(ref, seen.append, "too late")
    assert seen == ["data"]
    assert runtime.dead_letters == 1


def test_run_as_does_not_run_an_actor_that_an_exit_signal_waits_for(
    runtime: Runtime, mortal_class: Any
) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(mortal_class, seen)

    runtime.exit(ref, "kill")
    runtime.run_as(ref, seen.append, "data")

    assert seen == []
    assert runtime.dead_letters == 1


def test_run_as_within_the_actors_own_turn_is_part_of_it(
    runtime: Runtime, mortal_class: Any
) -> None:
    ref = runtime.spawn(mortal_class, [])
    reasons: list[object] = []
    runtime.watch(ref, reasons.append)

    runtime.send(ref, lambda actor: runtime.run_as(ref, int, "x"))
    runtime.run_until_idle()

    assert [type(reason) for reason in reasons] == [Crash]
    assert runtime.dead_letters == 0


def test_mail_sent_in_run_as_is_handled_later(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    ref = runtime.spawn(log_class, seen)

    runtime.run_as(ref, runtime.send, ref, "mail")

    assert seen == []
    runtime.run_until_idle()
    assert seen == ["mail"]


def test_actor_code_must_not_drain_the_runtime(runtime: Runtime, mortal_class: Any) -> None:
    ref = runtime.spawn(mortal_class, [])
    reasons: list[Any] = []
    runtime.watch(ref, reasons.append)

    runtime.send(ref, lambda actor: runtime.drain())
    runtime.run_until_idle()

    assert [reason.kind for reason in reasons] == [ActorError]


def test_sweep_gives_back_empty_mailboxes_only(runtime: Runtime, log_class: Any) -> None:
    seen: list[Any] = []
    idle, busy, fresh = (runtime.spawn(log_class, seen) for _ in range(3))
    runtime.send(idle, "one")
    runtime.run_until_idle()
    runtime.send(busy, "two")

    assert runtime.sweep() == 1

    assert idle.cell.inbox is fresh.cell.inbox is None
    runtime.send(idle, "three")
    runtime.run_until_idle()
    assert seen == ["one", "two", "three"]


def test_sweep_in_slices_comes_to_everybody_and_begins_again(
    runtime: Runtime, log_class: Any
) -> None:
    seen: list[Any] = []
    actors = [runtime.spawn(log_class, seen) for _ in range(5)]
    for _ in range(2):
        for ref in actors:
            runtime.send(ref, "mail")
        runtime.run_until_idle()

        assert [runtime.sweep(2) for _ in range(3)] == [2, 2, 1]

        assert [ref.cell.inbox for ref in actors] == [None] * 5


def test_sweep_gives_back_the_room_of_actors_that_have_ended(
    runtime: Runtime, log_class: Any
) -> None:
    table = runtime._table
    actors = [runtime.spawn(log_class, []) for _ in range(5_000)]
    for ref in actors[3:]:
        runtime.exit(ref, "kill")
    runtime.run_until_idle()
    before_bytes = sys.getsizeof(table.live)

    runtime.sweep(2)

    assert sys.getsizeof(table.live) < before_bytes / 100
    assert [cell.ref for cell in table.live.values()] == actors[:3]


def test_sweep_gives_back_the_sorted_mail_of_classes_with_priorities(runtime: Runtime) -> None:
    seen: list[Any] = []

    class Sorted(OtpActor):
        def prioritise(self, message: Any) -> int:
            return int(message)

        def handle_mail(self, message: Any, sender: Ref | None) -> None:
            seen.append(message)

    ref = runtime.spawn(Sorted)
    for message in (1, 3, 2):
        runtime.send(ref, message)
    runtime.run_until_idle()

    runtime.sweep()

    assert ref.cell.inbox is ref.cell.levels is None
    runtime.send(ref, 1)
    runtime.run_until_idle()
    assert seen == [3, 2, 1, 1]


def test_an_unknown_message_ends_the_actor(runtime: Runtime) -> None:
    ref = runtime.spawn(OtpActor)
    reasons: list[Any] = []
    runtime.watch(ref, reasons.append)

    runtime.send(ref, "what is this")
    runtime.run_until_idle()

    assert reasons[0].kind is TypeError
    assert "does not know 'what is this'" in reasons[0].text


def test_a_runtime_needs_a_loop_or_a_clock() -> None:
    with pytest.raises(ActorError, match="clock"):
        Runtime()
