"""Rules that no trace shows, on the core alone; by their number in ``rules/table.py``.

Tests: supervisors/dynamic.py, supervisors/effects.py
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from leveret.supervisors.core import add_restart
from leveret.supervisors.dynamic import make_core
from leveret.supervisors.effects import Start, Stop
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from rigs.supervision.player import FakeDriver

SIMPLE = "simple_one_for_one"
DELAYED = ("permanent", 3.0)


def states(driver: Any) -> dict[Any, Any]:
    return {
        row[0]: row[1] if row[1] in (None, "restarting") else "up"
        for row in driver.request("which_children")
    }


def reports(driver: Any) -> list[tuple[str, Any]]:
    return [(r.context, r.reason) for r in driver.reports if r.context != "progress"]


@pytest.mark.parametrize("restart", [DELAYED, ("transient", 3.0), ("intrinsic", 3.0)])
def test_18_a_delayed_child_waits_where_intensity_would_be_exceeded(
    drive: Any, child: Any, restart: Any
) -> None:
    driver = drive(child("a"), child("b", restart=restart), intensity=1, period_s=60)
    driver.exit(driver.pid("b"), "boom")

    driver.exit(driver.pid("b"), "boom")

    assert driver.ended is None
    assert states(driver) == {"b": "restarting", "a": "up"}
    driver.advance(2.9)
    assert states(driver)["b"] == "restarting"
    driver.advance(0.1)
    assert states(driver) == {"b": "up", "a": "up"}


def test_18_other_children_still_exceed_the_intensity(drive: Any, child: Any) -> None:
    driver = drive(child("a"), child("b", restart=DELAYED), intensity=1, period_s=60)
    driver.exit(driver.pid("b"), "boom")

    driver.exit(driver.pid("a"), "boom")

    assert driver.ended == "shutdown"


@pytest.mark.parametrize(
    ("restart", "reason", "is_restarted"),
    [
        (("transient", 1), "normal", False),
        (("transient", 1), ("shutdown", "x"), False),
        (("transient", 1), ("shutdown", "restart"), True),
        (("intrinsic", 1), ("shutdown", "restart"), True),
        (DELAYED, "normal", True),
    ],
)
def test_18_the_kind_decides_before_the_delay_does(
    drive: Any, child: Any, restart: Any, reason: Any, is_restarted: bool
) -> None:
    driver = drive(child("a", restart=restart), intensity=1, period_s=60)

    driver.exit(driver.pid("a"), reason)

    assert states(driver)["a"] == ("up" if is_restarted else None)


def test_19_the_delayed_try_clears_the_restart_history(drive: Any, child: Any) -> None:
    driver = drive(child("b", restart=DELAYED), intensity=1, period_s=600)
    driver.exit(driver.pid("b"), "boom")
    driver.exit(driver.pid("b"), "boom")
    driver.advance(3)
    assert states(driver) == {"b": "up"}

    driver.exit(driver.pid("b"), "boom")

    assert states(driver) == {"b": "restarting"}
    driver.advance(3)
    assert states(driver) == {"b": "up"}


def test_19_the_delayed_try_reports_the_end_again_as_supervisor2_does(
    drive: Any, child: Any
) -> None:
    driver = drive(child("b", restart=DELAYED), intensity=1, period_s=600)
    driver.exit(driver.pid("b"), "boom")
    driver.exit(driver.pid("b"), "bang")

    driver.advance(3)

    ends = [("child_terminated", reason) for reason in ("boom", "bang", "bang")]
    assert reports(driver) == ends


def test_19_nothing_happens_when_the_child_was_deleted_meanwhile(drive: Any, child: Any) -> None:
    driver = drive(child("b", restart=DELAYED), intensity=1, period_s=600)
    driver.exit(driver.pid("b"), "boom")
    driver.exit(driver.pid("b"), "boom")
    assert driver.request("terminate_child", "b") == "ok"
    assert driver.request("delete_child", "b") == "ok"
    trace = list(driver.trace)

    driver.advance(3)

    assert (driver.trace, states(driver)) == (trace, {})


def test_19_an_old_delay_does_not_hurry_a_newer_one(drive: Any, child: Any) -> None:
    driver = drive(child("b", restart=DELAYED), intensity=1, period_s=600)
    driver.exit(driver.pid("b"), "boom")
    driver.exit(driver.pid("b"), "boom")
    driver.request("terminate_child", "b")
    driver.advance(2)
    driver.request("restart_child", "b")
    driver.exit(driver.pid("b"), "boom")
    assert states(driver) == {"b": "restarting"}

    driver.advance(1)

    assert states(driver) == {"b": "restarting"}
    driver.advance(2)
    assert states(driver) == {"b": "up"}


def test_18_a_delayed_dynamic_child_waits_as_well(drive: Any, child: Any) -> None:
    driver = drive(child("a", restart=DELAYED), strategy=SIMPLE, intensity=0)
    driver.request("start_child", ())

    driver.exit(driver.running()[0], "boom")

    assert states(driver) == {None: "restarting"}
    assert driver.request("count_children")["active"] == 0


@pytest.mark.parametrize(
    ("restart", "expected"), [("permanent", [(1, "x"), (1, "x")]), ("transient", [(1, "x")] * 2)]
)
def test_29_dynamic_children_get_their_own_extra_arguments_again(
    drive: Any, child: Any, restart: str, expected: Any
) -> None:
    driver = drive(child("a", args=(1,), restart=restart), strategy=SIMPLE, intensity=5)
    driver.request("start_child", ("x",))
    driver.request("start_child", ("y",))

    driver.exit(driver.running()[0], "boom")

    assert [pid.args for pid in driver.pids if pid.args[1] == "x"] == expected
    assert sorted(pid.args for pid in driver.running()) == [(1, "x"), (1, "y")]


def test_29_also_after_a_restart_that_failed(drive: Any, child: Any) -> None:
    driver = drive(child("a", "ok ok err ok"), strategy=SIMPLE, intensity=5)
    for extra in ("x", "y"):
        driver.request("start_child", (extra,))

    driver.exit(driver.running()[0], "boom")

    assert sorted(pid.args for pid in driver.running()) == [("x",), ("y",)]


def test_29_arguments_of_temporary_children_are_not_kept(drive: Any, child: Any) -> None:
    driver = drive(child("a", restart="temporary"), strategy=SIMPLE)

    driver.request("start_child", ("x",))

    assert list(driver.core.children.values()) == [None]


def test_31_a_dynamic_child_that_ignores_its_restart_is_dropped(drive: Any, child: Any) -> None:
    driver = drive(child("a", "ok ign"), strategy=SIMPLE)
    driver.request("start_child", ())

    driver.exit(driver.running()[0], "boom")

    count = driver.request("count_children")
    assert (states(driver), count["active"], count["workers"]) == ({}, 0, 0)
    assert driver.shutdown() == "shutdown"


def test_37_the_window_is_in_fractions_of_seconds_and_ends_at_exactly_the_period() -> None:
    cases = [(1.0, False), (0.999, False), (1.001, True), (1.85, True), (2.0, True)]

    for gap_s, is_allowed in cases:
        times_s: list[float] = []
        add_restart(times_s, 100.0, intensity=1, period_s=1)
        assert add_restart(times_s, 100.0 + gap_s, intensity=1, period_s=1) is is_allowed


def test_36_restarts_that_left_the_window_are_forgotten() -> None:
    times_s: list[float] = []

    allowed = [add_restart(times_s, at_s, intensity=2, period_s=10) for at_s in (0, 1, 11, 12, 13)]

    assert (allowed, times_s) == ([True, True, True, True, False], [11, 12, 13])


def test_39_a_terminate_child_between_two_attempts_wins(drive: Any, child: Any) -> None:
    driver = drive(child("a", "ok err ok"), intensity=5)
    driver.exit_only(driver.pid("a"), "boom")
    assert states(driver) == {"a": "restarting"}

    assert driver.request("terminate_child", "a") == "ok"

    driver.settle()
    assert states(driver) == {"a": None}


def test_39_between_two_attempts_other_requests_are_answered(drive: Any, child: Any) -> None:
    driver = drive(child("a", "ok err ok"), intensity=5)
    driver.exit_only(driver.pid("a"), "boom")

    answers = {
        "restart_child": driver.request("restart_child", "a"),
        "delete_child": driver.request("delete_child", "a"),
        "start_child": driver.request("start_child", child("a")),
        "other": driver.request("start_child", child("b"))[0],
    }

    assert answers == {
        "restart_child": ("error", "restarting"),
        "delete_child": ("error", "restarting"),
        "start_child": ("error", "already_present"),
        "other": "ok",
    }
    driver.settle()
    assert states(driver) == {"b": "up", "a": "up"}


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one", SIMPLE])
def test_63_terminate_child_takes_a_waiting_restart_back(
    drive: Any, child: Any, strategy: str, delayed: bool
) -> None:
    a = child("a", "ok ok" if delayed else "ok err", restart=DELAYED)
    driver = drive(a, strategy=strategy, intensity=0 if delayed else 3)
    if strategy == SIMPLE:
        driver.request("start_child", ())
    pid = driver.running()[0]
    driver.exit_only(pid, "boom")
    assert list(states(driver).values()) == ["restarting"]

    assert driver.request("terminate_child", pid if strategy == SIMPLE else "a") == "ok"

    driver.advance(10)
    assert states(driver) == ({} if strategy == SIMPLE else {"a": None})
    assert driver.starts["a"] == (1 if delayed else 2)


def test_27_the_group_restart_goes_on_from_the_child_that_failed(drive: Any, child: Any) -> None:
    driver = drive(child("a"), child("b", "ok err"), child("c"), strategy="one_for_all")
    driver.exit_only(driver.pid("a"), "boom")

    assert states(driver) == {"c": None, "b": "restarting", "a": "up"}


def test_49_the_reasons_of_a_parallel_stop_are_reported_once_each(drive: Any, child: Any) -> None:
    driver = drive(child("a", on_shutdown="wrong"), strategy=SIMPLE)
    for _ in range(3):
        driver.request("start_child", ())

    driver.shutdown()

    assert [(r.context, r.reason, r.count) for r in driver.reports] == [
        ("shutdown_error", "wrong", 3)
    ]


def test_41_the_clock_that_counts_is_the_one_that_is_passed_in(drive: Any, child: Any) -> None:
    driver = drive(child("a"), intensity=1, period_s=5)
    driver.exit(driver.pid("a"), "boom")
    driver.advance(5.5)

    driver.exit(driver.pid("a"), "boom")

    assert driver.ended is None
    driver.exit(driver.pid("a"), "boom")
    assert driver.ended == "shutdown"


def test_10_the_end_of_a_stranger_is_ignored(drive: Any, child: Any) -> None:
    for flags in ({}, {"strategy": SIMPLE}):
        driver = drive(child("a", "ign", restart="transient"), **flags)
        for unknown in (object(), None, [], "a"):
            assert list(driver.core.exited(unknown, "boom", 0.0)) == []


def test_61_62_and_68_unknown_children_and_full_specs(drive: Any, child: Any) -> None:
    spec = child("a", "err")
    driver = drive(child("b"))

    assert driver.request("start_child", spec) == ("error", ("nope", spec))
    assert driver.request("get_childspec", "a") == ("error", "not_found")
    assert driver.request("get_childspec", "b")[1].shutdown == 5.0
    assert driver.request("start_child", "c") == ("error", ("invalid_child_spec", "c"))


def test_68_dynamic_children_have_the_templates_spec(drive: Any, child: Any) -> None:
    driver = drive(child("a"), strategy=SIMPLE)
    driver.request("start_child", ())

    keys = ("a", driver.running()[0], "b", object())
    found = [driver.request("get_childspec", key)[0] for key in keys]
    assert found == ["ok", "ok", "error", "error"]


def test_62_terminating_a_dead_or_foreign_address(drive: Any, child: Any) -> None:
    driver = drive(child("a", restart="temporary"), strategy=SIMPLE)
    driver.request("start_child", ())
    pid = driver.running()[0]
    driver.exit(pid, "normal")
    alive = type(pid)(99, pid.spec, ())

    answers = [driver.request("terminate_child", ref) for ref in (pid, alive, "a")]

    assert answers == ["ok", ("error", "not_found"), ("error", "simple_one_for_one")]


def test_70_a_report_names_the_child_with_its_spec(drive: Any, child: Any) -> None:
    driver = drive(child("a", restart="transient", shutdown=7), intensity=0)
    pid = driver.pid("a")
    driver.exit(pid, "boom")

    terminated, given_up = [r for r in driver.reports if r.context != "progress"]

    offender = terminated.offender()
    del offender["start"]
    assert offender == {
        "pid": pid,
        "id": "a",
        "restart": "transient",
        "significant": False,
        "shutdown": 7,
        "type": "worker",
    }
    assert (given_up.reason, given_up.ref) == ("reached_max_restart_intensity", pid)


def test_70_a_grouped_report_has_a_count_instead_of_the_address(drive: Any, child: Any) -> None:
    driver = drive(child("a", on_shutdown="wrong"), strategy=SIMPLE)
    driver.request("start_child", ())
    driver.shutdown()

    offender = driver.reports[0].offender()
    assert (offender["nb_children"], "pid" in offender) == (1, False)


def test_automatic_restarts_are_counted_for_each_child(drive: Any, child: Any) -> None:
    driver = drive(child("a"), child("b"), child("c"), strategy="rest_for_one", intensity=9)
    for name in ("b", "c", "b"):
        driver.exit(driver.pid(name), "boom")
    driver.request("terminate_child", "a")
    driver.request("restart_child", "a")

    counts = {name: c.restarts for name, c in driver.core.children.items()}
    assert counts == {"a": 0, "b": 2, "c": 3}


def test_restarts_of_a_dynamic_child_are_counted_over_all_its_lives(drive: Any, child: Any) -> None:
    driver = drive(child("a", "ok ok err"), strategy=SIMPLE, intensity=9)
    driver.request("start_child", ())
    driver.exit(driver.running()[0], "boom")
    driver.exit(driver.running()[0], "boom")

    assert [count for count, _ in driver.core.restart_counts.values()] == [2]
    driver.request("terminate_child", driver.running()[0])
    assert driver.core.restart_counts == {}


def test_45_and_46_in_each_dialect(child: Any) -> None:
    cases = [
        ("otp", "transient", ("shutdown", "x"), False),
        ("otp", "permanent", ("shutdown", "x"), True),
        ("rabbitmq", "transient", ("shutdown", "x"), True),
        ("otp", "transient", "normal", False),
        ("rabbitmq", "transient", "normal", False),
        ("otp", "permanent", "normal", True),
    ]
    for dialect, restart, how, is_reported in cases:
        a = child("a", restart=restart, on_shutdown=how)
        driver = FakeDriver(SupervisorSpec(children=(a,), dialect=dialect))
        driver.boot()
        driver.shutdown()
        assert reports(driver) == ([("shutdown_error", how)] if is_reported else [])


@pytest.mark.parametrize(("restart", "is_reported"), [("intrinsic", False), ("permanent", True)])
def test_45_and_48_a_dynamic_child_that_was_done_before_its_kill(
    drive: Any, child: Any, restart: str, is_reported: bool
) -> None:
    template = child("a", restart=restart, shutdown="brutal_kill")
    driver = drive(template, strategy=SIMPLE, dialect="rabbitmq", intensity=0)
    for _ in range(2):
        driver.request("start_child", ())
    first, second = driver.running()

    reason = "normal" if restart == "intrinsic" else "boom"
    driver.burst([("do", first, reason), ("do", second, "normal")])

    ends = [r for r in driver.reports if r.context == "shutdown_error"]
    assert (driver.ended, bool(ends)) == ("shutdown", is_reported)


def test_10_and_20_the_dead_one_is_found_among_many(drive: Any, child: Any) -> None:
    names = [f"c{n}" for n in range(100)]
    driver = drive(*(child(name) for name in names), intensity=10_000)
    first = dict(zip(names, driver.running(), strict=True))
    for name in names:
        for _ in range(5):
            driver.exit(driver.pid(name), "boom")
    driver.request("start_child", child("new"))
    driver.exit(driver.pid("new"), "boom")
    for pid in first.values():
        assert list(driver.core.exited(pid, "boom", 0.0)) == []

    assert driver.starts == Counter({**dict.fromkeys(names, 6), "new": 2})
    assert set(states(driver).values()) == {"up"}
    for name in names:
        driver.request("terminate_child", name)
        driver.request("delete_child", name)
    for _ in range(5):
        driver.exit(driver.pid("new"), "boom")
    assert states(driver) == {"new": "up"}


def test_14_many_temporary_children_end_one_after_the_other(drive: Any, child: Any) -> None:
    names = [f"c{n}" for n in range(100)]
    driver = drive(*(child(name, restart="temporary") for name in names))

    for name in names:
        driver.exit(driver.pid(name), "normal")

    assert states(driver) == {}


def test_5_the_next_start_waits_for_the_answer_of_the_one_before() -> None:
    spec = SupervisorSpec(children=(ChildSpec("a", object), ChildSpec("b", object)))
    boot = make_core(spec).boot()

    first = boot.send(None)
    second = boot.send(object())

    assert [type(first), first.spec.id, type(second), second.spec.id] == [Start, "a", Start, "b"]


def test_42_the_next_stop_waits_for_the_end_of_the_one_before() -> None:
    spec = SupervisorSpec(children=(ChildSpec("a", object), ChildSpec("b", object)))
    core = make_core(spec)
    boot = core.boot()
    boot.send(None)
    boot.send("ref a")
    with pytest.raises(StopIteration):
        boot.send("ref b")
    stop = core.stop_all()

    first = stop.send(None)
    second = stop.send("shutdown")

    assert [type(first), first.ref, type(second), second.ref] == [Stop, "ref b", Stop, "ref a"]
