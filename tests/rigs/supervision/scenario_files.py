"""Supervisor scenarios as data: their files, their format, and their specs.

``data/README.md`` describes the format. This module refuses unknown parts of it by name: a scenario
that is played only in part proves nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Set
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from leveret.supervisors.spec import ChildSpec, SpecError, SupervisorSpec

DATA = Path(__file__).parents[2] / "supervisors" / "data"
TRACES = Path(os.environ.get("LEVERET_OTP_TRACES") or DATA / "otp_traces.json")
GENERATED = DATA / "otp_traces_generated.json"
SIMPLE = "simple_one_for_one"
MODULES = ("supervisor", "supervisor2")
OUTCOMES = ("ok", "err", "raise", "ign")
ON_SHUTDOWN = ("no", "stub", "wrong")
BURST = "burst"  # several things wait in the supervisor's mailbox
TIME = "time"  # time passes that is not real
TREES = "trees"  # a child is a supervisor
REQUESTS = ("start_child", "terminate_child", "restart_child", "delete_child")

FLAGS: dict[str, Any] = {
    "strategy": "one_for_one",
    "intensity": 1,
    "period": 5,
    "auto_shutdown": "never",
}
CHILD: dict[str, Any] = {
    "restart": "permanent",
    "significant": False,
    "shutdown": None,
    "type": "worker",
    "starts": (),
    "on_shutdown": "no",
    "tree": None,
}

Scenario: TypeAlias = "dict[str, Any]"
StartOf: TypeAlias = "Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...]]]"


class UnknownScenarioError(Exception):
    """A scenario says something that the player does not know."""


def read(path: Path) -> list[Scenario]:
    """Read a file of scenarios.

    Raises:
        UnknownScenarioError: it is not a list of scenarios with traces.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, list) or not found:
        raise UnknownScenarioError(f"{path} is not a list of scenarios")
    for number, scenario in enumerate(found):
        if not isinstance(scenario, dict) or not isinstance(scenario.get("trace"), list):
            raise UnknownScenarioError(f"{path}: entry {number} is not a scenario with a trace")
    return found


def scenarios(lacks: Set[str] = frozenset()) -> Iterator[Any]:
    """Yield the recorded scenarios as pytest parameters: the chosen ones, and later recordings.

    Args:
        lacks: abilities that the base they are for does not have.
    """
    for number, scenario in enumerate([*read(TRACES), *read(GENERATED)]):
        if needs_of(scenario) & lacks:
            continue
        strategy = scenario.get("flags", {}).get("strategy", FLAGS["strategy"])
        yield pytest.param(scenario, id=f"{number}-{scenario.get('module')}-{strategy}")


def checked(scenario: Scenario) -> Scenario:
    """Return the scenario with its defaults filled in.

    Raises:
        UnknownScenarioError: it has something in it that cannot be played.
    """
    keys = {"module", "flags", "children", "actions", "trace"}
    _know("key of a scenario", set(scenario) - keys)
    _know("module", {scenario.get("module")} - set(MODULES))
    flags = scenario.get("flags", {})
    _know("flag", set(flags) - set(FLAGS))
    children = [_checked_child(row) for row in scenario.get("children", ())]
    actions = [_checked_action(action) for action in scenario.get("actions", ())]
    return {**scenario, "flags": {**FLAGS, **flags}, "children": children, "actions": actions}


def _checked_child(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UnknownScenarioError(f"unknown child: {row!r}")
    _know("key of a child", set(row) - {"id", *CHILD})
    full = {"id": None, **CHILD, **row}
    if full["tree"] is not None:
        full["tree"] = checked({"module": "supervisor", **full["tree"]})
    _know("outcome of a start", set(full["starts"]) - set(OUTCOMES))
    _know("on_shutdown", {full["on_shutdown"]} - set(ON_SHUTDOWN))
    return {**full, "restart": to_reason(full["restart"])}


def _checked_action(action: Any) -> list[Any]:
    match action:
        case ["do", _, reason]:
            return [*action[:2], to_reason(reason)]
        case ["start_child", list()]:
            return list(action)
        case ["start_child", row]:
            return ["start_child", _checked_child(row)]
        case [("terminate_child" | "restart_child" | "delete_child"), _]:
            return list(action)
        case ["sleep", int() | float()]:
            return list(action)
        case ["burst", list(steps)]:
            found = [_checked_action(step) for step in steps]
            _know("step of a burst", {step[0] for step in found} - {"do", *REQUESTS})
            return ["burst", found]
    raise UnknownScenarioError(f"unknown action: {action!r}")


def _know(part: str, unknown: set[Any]) -> None:
    if unknown:
        raise UnknownScenarioError(f"unknown {part}: {', '.join(sorted(map(repr, unknown)))}")


def has_trees(scenario: Scenario) -> bool:
    """Tell whether some of the children are supervisors with children of their own."""
    rows = scenario.get("children", ())
    return any(isinstance(row, dict) and row.get("tree") is not None for row in rows)


def needs_of(scenario: Scenario) -> set[str]:
    """Return the abilities that a base needs, beyond starting, asking, killing and ending of a reason."""
    actions = scenario.get("actions", ())
    names = {action[0] for action in actions}
    started = [action[1] for action in actions if action[0] == "start_child"]
    rows = [row for row in (*scenario.get("children", ()), *started) if isinstance(row, dict)]
    found = {BURST} & names
    if has_trees(scenario):
        found.add(TREES)
    if "sleep" in names or any(isinstance(row.get("restart"), list | tuple) for row in rows):
        found.add(TIME)
    return found


def to_spec(scenario: Scenario, start_of: StartOf) -> SupervisorSpec:
    """Make the spec of a scenario; ``start_of`` gives a child's class and arguments.

    Raises:
        SpecError: the recorded supervisor refuses it, too; flags come before children.
    """
    flags = scenario["flags"]
    is_otp = scenario["module"] == "supervisor"
    rest: dict[str, Any] = {
        "intensity": flags["intensity"],
        "period_s": flags["period"],
        "auto_shutdown": flags["auto_shutdown"] if is_otp else "never",
        "dialect": "otp" if is_otp else "rabbitmq",
    }
    rows = scenario["children"]
    if flags["strategy"] != SIMPLE:
        SupervisorSpec(strategy=flags["strategy"], **rest)
    elif len(rows) != 1:
        rows = []
    children = tuple(to_child(scenario, row, start_of) for row in rows)
    return SupervisorSpec(strategy=flags["strategy"], children=children, **rest)


def to_child(scenario: Scenario, row: dict[str, Any], start_of: StartOf) -> ChildSpec:
    """Make the spec of one child of a scenario."""
    actor_class, args = start_of(row)
    shutdown = row["shutdown"]
    is_otp = scenario["module"] == "supervisor"
    if is_otp and (row["restart"] == "intrinsic" or isinstance(row["restart"], tuple)):
        raise SpecError("start_spec", ("invalid_restart_type", row["restart"]))  # RabbitMQ's only
    if not is_otp and shutdown == 0:
        raise SpecError("start_spec", ("invalid_shutdown", 0))  # of supervisor2, not of ours
    return ChildSpec(
        id=row["id"],
        actor_class=actor_class,
        args=args,
        restart=row["restart"],
        shutdown=shutdown / 1000 if isinstance(shutdown, int | float) else shutdown,
        type=row["type"],
        significant=row["significant"] if is_otp else False,
    )


def to_reason(value: Any) -> Any:
    """Make a reason of a JSON value: lists stand for Erlang's tuples."""
    return tuple(map(to_reason, value)) if isinstance(value, list | tuple) else value


def erlang(term: Any) -> str:
    """Write a reason as Erlang's ``~w`` does; texts stand for atoms."""
    if isinstance(term, tuple):
        return "{" + ",".join(map(erlang, term)) + "}"
    if isinstance(term, list):
        return "[" + ",".join(map(erlang, term)) + "]"
    if isinstance(term, bool):
        return str(term).lower()
    return str(term)


def are_equal(scenario: Scenario, one: list[str], other: list[str]) -> bool:
    """Tell whether two traces of a scenario are equal, token by token.

    Dynamic children that are stopped at once have no order: the real supervisors take them in that of a
    hash table.
    """
    return one == other or _sorted_ends(scenario, one) == _sorted_ends(scenario, other)


def _sorted_ends(scenario: Scenario, trace: list[str]) -> list[str]:
    if scenario["flags"].get("strategy") != SIMPLE:
        return trace
    runs = groupby(trace, key=lambda token: token.startswith("-"))
    return [token for ends, run in runs for token in (sorted(run) if ends else run)]
