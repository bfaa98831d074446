"""Which policies apply, and their values merged with each other and with arguments.

Tests: broker/registry/queue_settings.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from leveret.broker.registry.queue_settings import NO_POLICIES, NO_SETTINGS, QueueSettings
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.vhost.policies.policies import Policies, apply_to_exchange, apply_to_queue
from leveret.core.limits import TTL_MS_MAX
from leveret.metadata.tables import PolicyRow
from leveret.routing.exchange import Exchange


def row(name: str, pattern: str = ".*", priority: int = 0, **definition: Any) -> PolicyRow:
    apply_to = definition.pop("apply_to", "all")
    is_operator = definition.pop("operator", False)
    definition = {key.replace("_", "-"): value for key, value in definition.items()}
    return PolicyRow("/", name, pattern, definition, priority, apply_to, is_operator)


def policies(*rows: PolicyRow, now_s: Callable[[], float] = time.monotonic) -> Policies:
    found = Policies(now_s)
    for each in rows:
        found.put(each)
    return found


def name_of(found: PolicyRow | None) -> str | None:
    return found.name if found is not None else None


LAZY = {"queue_mode": "lazy"}


@pytest.mark.parametrize(
    ("rows", "queue", "exchange"),
    [
        ([], None, None),
        ([row("p", "^a", **LAZY)], "p", "p"),
        ([row("p", "b", **LAZY)], "p", "p"),
        ([row("p", "^b", **LAZY)], None, None),
        ([row("p", apply_to="queues", **LAZY)], "p", None),
        ([row("p", apply_to="exchanges", **LAZY)], None, "p"),
        ([row("p", **LAZY), row("q", priority=1, **LAZY)], "q", "q"),
        ([row("q", **LAZY), row("p", **LAZY)], "p", "p"),
        ([row("p", priority=-1, **LAZY), row("q", "^x", **LAZY)], "p", "p"),
        ([row("p", **LAZY), row("q", priority=1, max_age="1D", **LAZY)], "p", "q"),
        ([row("p", **LAZY), row("q", priority=1, delivery_limit=1)], "q", "q"),
        ([row("p", **LAZY), row("q", priority=1, dead_letter_strategy="at-most-once")], "p", "q"),
        ([row("p", "^a", **LAZY), row("p", "^b", **LAZY)], None, None),
    ],
)
def test_the_strongest_that_fits_applies(
    rows: list[PolicyRow], queue: str | None, exchange: str | None
) -> None:
    found = policies(*rows)

    assert name_of(found.of_queue("abc").policy) == queue
    assert name_of(found.of_exchange("abc").policy) == exchange


def test_one_of_each_kind_applies_and_limits_are_the_lesser() -> None:
    found = policies(
        row("p", message_ttl=500, max_length=7, queue_mode="lazy"),
        row("o", operator=True, message_ttl=900, max_length=3, expires=5),
    ).of_queue("q")

    assert (name_of(found.policy), name_of(found.operator)) == ("p", "o")
    assert list(found.definition.items()) == [
        ("expires", 5), ("max-length", 3), ("message-ttl", 500), ("queue-mode", "lazy"),
    ]  # fmt: skip


def test_a_policy_that_is_removed_makes_room_for_the_next() -> None:
    found = policies(row("p", priority=2, **LAZY), row("q", **LAZY), row("p", operator=True))

    found.remove(row("p"))
    assert (name_of(found.of_queue("a").policy), name_of(found.of_queue("a").operator)) == (
        "q",
        "p",
    )
    found.remove(row("q"))
    found.remove(row("p", operator=True))
    assert found.of_queue("a") is NO_POLICIES


def test_the_same_policies_are_one_object_for_all_queues() -> None:
    found = policies(row("p", **LAZY))

    assert found.of_queue("a") is found.of_queue("b")
    assert found.of_queue("a") is found.of_exchange("a")


@pytest.mark.parametrize(
    ("argument", "policy", "operator", "effective"),
    [(5, 3, None, 3), (2, 3, None, 2), (None, 3, None, 3), (5, 3, 1, 1), (5, None, 4, 4)],
)
def test_of_limits_the_least_holds(
    argument: int | None, policy: int | None, operator: int | None, effective: int
) -> None:
    names = ("expires", "message_ttl", "max_length", "max_length_bytes")
    rows = []
    if policy is not None:
        rows.append(row("p", **dict.fromkeys(names, policy)))
    if operator is not None:
        rows.append(row("o", operator=True, **dict.fromkeys(names, operator)))
    arguments: dict[str, tuple[str, Any]] = {}
    if argument is not None:
        arguments = {f"x-{name.replace('_', '-')}": ("l", argument) for name in names}
    entry = QueueEntry("/", "q", arguments=arguments)

    assert apply_to_queue(policies(*rows), entry)

    settings = entry.settings
    assert (settings.expires_ms, settings.message_ttl_ms) == (effective, effective)
    assert (settings.max_length, settings.max_length_bytes) == (effective, effective)


def test_of_everything_else_the_argument_holds() -> None:
    arguments = {
        "x-queue-mode": ("S", b"default"),
        "x-dead-letter-exchange": ("S", b"mine"),
        "x-overflow": ("S", b"drop-head"),
    }
    entry = QueueEntry("/", "q", arguments=arguments)
    given = row(
        "p", queue_mode="lazy", dead_letter_exchange="theirs", dead_letter_routing_key="k",
        overflow="reject-publish",
    )  # fmt: skip

    apply_to_queue(policies(given), entry)

    settings = entry.settings
    assert (settings.queue_mode, settings.overflow) == ("default", "drop-head")
    assert (settings.dead_letter_exchange, settings.dead_letter_routing_key) == ("mine", "k")


QUORUM = {"x-queue-type": ("S", b"quorum")}


def quorum(*rows: PolicyRow, **arguments: Any) -> QueueSettings:
    """The settings of a quorum queue under policies."""
    given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    entry = QueueEntry("/", "q", durable=True, arguments=QUORUM | given)
    apply_to_queue(policies(*rows), entry)
    return entry.settings


def test_of_a_quorum_queue_a_policy_overrules_expiry_and_overflow() -> None:
    settings = quorum(
        row("p", expires=9, overflow="reject-publish", message_ttl=9, max_length=9, delivery_limit=9),
        expires=("l", 5), overflow=("S", b"drop-head"), message_ttl=("l", 5), max_length=("l", 5),
        delivery_limit=("l", 5),
    )  # fmt: skip

    assert (settings.expires_ms, settings.overflow) == (9, "reject-publish")
    assert (settings.message_ttl_ms, settings.max_length, settings.delivery_limit) == (5, 5, 5)


def test_an_overflow_that_quorum_queues_do_not_have_is_drop_head() -> None:
    dead = "reject-publish-dlx"

    assert quorum(overflow=("S", dead.encode())).overflow is None
    assert quorum(row("p", overflow=dead), overflow=("S", b"reject-publish")).overflow is None


@pytest.mark.parametrize(
    ("field", "limit"),
    [(("l", 3), 3), (("l", -1), -1), (("S", b"a"), None), (("t", True), None), (("d", 2.5), None)],
)
def test_a_delivery_limit_is_a_number(field: tuple[str, Any], limit: int | None) -> None:
    assert quorum(delivery_limit=field).delivery_limit == limit


@pytest.mark.parametrize(
    ("definition", "applies"),
    [
        ({"delivery_limit": 1}, True),
        ({"dead_letter_strategy": "at-least-once"}, True),
        ({"max_in_memory_length": 1}, True),
        ({"message_ttl": 1}, True),
        ({"queue_leader_locator": "balanced"}, True),
        ({"queue_version": 1}, True),
        ({"queue_mode": "lazy"}, False),
        ({"ha_mode": "all"}, False),
        ({"queue_master_locator": "random"}, False),
        ({"max_age": "1D"}, False),
        ({"message_ttl": 1, "queue_mode": "lazy"}, False),
    ],
)
def test_policies_that_apply_to_quorum_queues(definition: dict[str, Any], applies: bool) -> None:
    found = policies(row("p", **definition))

    assert name_of(found.of_queue("q", "quorum").policy) == ("p" if applies else None)


def test_times_beyond_what_an_argument_may_say_are_cut() -> None:
    entry = QueueEntry("/", "q")

    apply_to_queue(policies(row("p", expires=10**15, message_ttl=10**15)), entry)

    assert (entry.settings.expires_ms, entry.settings.message_ttl_ms) == (TTL_MS_MAX, TTL_MS_MAX)


def test_only_a_change_is_one_and_without_policies_the_arguments_are_back() -> None:
    entry = QueueEntry("/", "q")
    found = policies(row("p", **LAZY))

    assert apply_to_queue(found, entry)
    found.put(row("p", **LAZY))
    assert not apply_to_queue(found, entry)
    found.put(row("p", priority=1, **LAZY))
    assert apply_to_queue(found, entry)
    found.remove(row("p"))
    assert apply_to_queue(found, entry)
    assert (entry.settings, entry.applied) == (NO_SETTINGS, NO_POLICIES)


def test_a_policy_gives_exchanges_an_alternate_but_their_argument_is_stronger() -> None:
    without = Exchange("e")
    own = Exchange("own", arguments={"alternate-exchange": ("S", b"mine")})
    found = policies(row("p", alternate_exchange="amq.fanout"))

    for exchange in (without, own):
        apply_to_exchange(found, exchange)

    assert (without.alternate, own.alternate) == ("amq.fanout", "mine")
    found.remove(row("p"))
    apply_to_exchange(found, without)
    assert without.alternate is None


# Look-ups in slices.


def many() -> Policies:
    """The strongest fits nothing, the weakest everything; each look at the clock takes a second."""
    rows = [row(f"p{number:03}", "^other", priority=-number, **LAZY) for number in range(95)]
    return policies(*rows, row("last", priority=-1000, **LAZY), now_s=count().__next__)


def test_a_look_up_through_many_policies_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = many()

    assert sum(1 for _ in found.search("q", "classic")) == 9

    monkeypatch.setattr(found, "search", None)  # what was found is taken
    assert name_of(found.of_queue("q").policy) == "last"


@pytest.mark.parametrize("removed", ["last", "p000"])
def test_a_policy_changed_during_a_look_up_counts(removed: str) -> None:
    found = many()
    look_up = found.search("q", "classic")

    next(look_up)
    found.put(row("new", priority=1, **LAZY))
    found.remove(row(removed))
    for _ in look_up:
        pass

    assert name_of(found.of_queue("q").policy) == "new"


def test_a_finding_is_of_its_name_and_kind_only() -> None:
    found = policies(row("p", "^q", apply_to="queues", **LAZY))

    for name, kind in (("q", "classic"), ("q", "quorum"), ("q", "exchanges"), ("r", "classic")):
        for _ in found.search(name, kind):
            pass
        assert name_of(found.of_queue("q").policy) == "p"
        assert found.of_queue("r") is NO_POLICIES
        assert found.of_exchange("q") is NO_POLICIES
