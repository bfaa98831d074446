from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.credit import CreditReceiver, CreditSender, Grant

LIMITS = ((10, 4), (1000, 400))


def test_a_sender_is_blocked_when_messages_or_bytes_are_spent() -> None:
    by_messages, by_bytes = CreditSender(*LIMITS), CreditSender(*LIMITS)

    assert by_messages.spend(9, 0) is False
    assert by_messages.spend(1, 0) is True
    assert by_messages.spend(1, 0) is False, "it is blocked already"
    assert by_bytes.spend(1, 999) is False
    assert by_bytes.spend(1, 500) is True
    assert by_bytes.is_blocked


def test_it_is_free_when_both_are_above_zero_again() -> None:
    sender = CreditSender(*LIMITS)
    sender.spend(12, 1200)

    assert sender.grant(2, 200) is False  # no message left, and no byte
    assert sender.grant(4, 0) is False  # no byte left
    assert sender.grant(0, 1) is True
    assert not sender.is_blocked
    assert sender.grant(4, 0) is False


def test_a_receiver_grants_what_it_took_in_when_enough_has_come() -> None:
    receiver = CreditReceiver(*LIMITS)

    assert receiver.received(3, 100) is None
    assert receiver.received(2, 100) == Grant(5, 200)
    assert receiver.received(1, 399) is None
    assert receiver.received(1, 1) == Grant(2, 400)


@given(st.lists(st.tuples(st.integers(1, 25), st.integers(0, 2500))))
def test_a_blocked_sender_is_freed_once_everything_has_been_taken_in(
    batches: list[tuple[int, int]],
) -> None:
    sender, receiver = CreditSender(*LIMITS), CreditReceiver(*LIMITS)

    for messages, size_bytes in batches:
        was_blocked = sender.spend(messages, size_bytes)
        grant = receiver.received(messages, size_bytes)
        freed = grant is not None and sender.grant(*grant)
        assert freed == was_blocked
        assert not sender.is_blocked


@given(st.lists(st.sampled_from(["send", "take", "close"]), max_size=200))
def test_both_ends_agree_when_the_receiver_closes_accounts(steps: list[str]) -> None:
    sender: CreditSender | None = None
    receiver: CreditReceiver | None = None
    under_way = 0

    for step in steps:
        grant = None
        if step == "send":
            sender = sender or CreditSender(*LIMITS)
            if not sender.is_blocked:
                sender.spend(1, 100)
                under_way += 1
        elif step == "take" and under_way:
            under_way -= 1
            receiver = receiver or CreditReceiver(*LIMITS)
            grant = receiver.received(1, 100)
        elif step == "close" and receiver is not None:
            grant, receiver = receiver.grant_rest(), None
        if grant is not None and sender is not None:
            sender.grant(*grant)
            sender = None if sender.is_whole else sender
        if under_way:
            assert sender is not None, "it forgot what is under way"
    assert under_way <= LIMITS[0][0]


def test_a_receiver_knows_that_nothing_came_since_it_was_asked_before() -> None:
    receiver = CreditReceiver(*LIMITS)
    receiver.received(1, 1)

    assert not receiver.was_idle()
    assert receiver.was_idle()
    receiver.received(1, 1)
    assert not receiver.was_idle()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=200))
def test_what_is_under_way_never_exceeds_the_initial_credit_and_one_batch(
    steps: list[tuple[bool, int]],
) -> None:
    sender, receiver = CreditSender(*LIMITS), CreditReceiver(*LIMITS)
    under_way: list[int] = []

    for is_send, messages in steps:
        if is_send and not sender.is_blocked:
            sender.spend(messages, 0)
            under_way.append(messages)
        elif under_way:
            grant = receiver.received(under_way.pop(0), 0)
            if grant is not None:
                sender.grant(*grant)
        assert sum(under_way) < LIMITS[0][0] + 3
