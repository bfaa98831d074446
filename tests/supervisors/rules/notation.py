"""How the cases of the table are written: scenarios of ``data/README.md`` in short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rigs.supervision.scenario_files import Scenario


@dataclass(frozen=True)
class Case:
    """One scenario that shows rules.

    Attributes:
        rules: their numbers.
        name: of the case, a sentence.
        scenario: with the trace that is expected.
        is_otps: whether the real supervisor gives the same trace; where it does not, its rule says so.
    """

    rules: tuple[int, ...]
    name: str
    scenario: Scenario
    is_otps: bool = True

    def __str__(self) -> str:
        return f"{'-'.join(map(str, self.rules))}: {self.name}"


def child(
    child_id: str, restart: Any = "permanent", starts: str = "", **rest: Any
) -> dict[str, Any]:
    """Make a child; ``starts`` are the outcomes of its first starts."""
    return {"id": child_id, "restart": restart, "starts": starts.split(), **rest}


def tree(
    child_id: str,
    children: list[Any],
    restart: Any = "permanent",
    module: str = "supervisor",
    **flags: Any,
) -> dict[str, Any]:
    """Make a child that is a supervisor with children; waited for as long as it takes."""
    below = {"module": module, "flags": _flags(flags), "children": _children(children)}
    return child(child_id, restart, type="supervisor", tree=below)


def case(
    rules: int | tuple[int, ...],
    name: str,
    children: list[Any],
    actions: list[Any],
    trace: str,
    *,
    module: str = "supervisor",
    is_otps: bool = True,
    **flags: Any,
) -> Case:
    """Write a case; children that are only a letter are permanent workers.

    Unless ``flags`` say something else, the intensity is never exceeded.
    """
    scenario = {
        "module": module,
        "flags": _flags(flags),
        "children": _children(children),
        "actions": actions,
        "trace": trace.split(),
    }
    numbers = rules if isinstance(rules, tuple) else (rules,)
    return Case(numbers, name, scenario, is_otps)


def _flags(given: dict[str, Any]) -> dict[str, Any]:
    return {"intensity": 9, "period": 3600, **given}


def _children(children: list[Any]) -> list[dict[str, Any]]:
    return [child(one) if isinstance(one, str) else one for one in children]


def do(child_id: Any, reason: Any = "boom") -> list[Any]:
    """Let a child end itself of ``reason`` (``kill``: be killed)."""
    return ["do", child_id, reason]


def start(child_or_spec: Any) -> list[Any]:
    """Ask for a new child: of a spec, or with extra arguments."""
    return [
        "start_child",
        child(child_or_spec) if isinstance(child_or_spec, str) else child_or_spec,
    ]


def terminate(child_id: Any) -> list[Any]:
    """Ask to stop a child."""
    return ["terminate_child", child_id]


def restart(child_id: Any) -> list[Any]:
    """Ask to start a stopped child again."""
    return ["restart_child", child_id]


def delete(child_id: Any) -> list[Any]:
    """Ask to forget a stopped child."""
    return ["delete_child", child_id]


def burst(*steps: list[Any]) -> list[Any]:
    """Let all of these wait before the supervisor handles the first."""
    return ["burst", list(steps)]


def sleep(ms: float) -> list[Any]:
    """Let time pass."""
    return ["sleep", ms]
