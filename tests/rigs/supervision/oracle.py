"""Plays scenarios on the real supervisors, where Erlang (and RabbitMQ) is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rigs.supervision.scenario_files import Scenario, are_equal, checked

SOURCE = Path(__file__).parents[2] / "supervisors" / "data" / "otp_oracle.erl"
SHORT = {
    "start_child": "startc",
    "terminate_child": "term",
    "restart_child": "restart",
    "delete_child": "delete",
}
NODES = 8  # they sleep most of the time
TIMEOUT_S = 400


def is_installed() -> bool:
    """Tell whether there is an Erlang with a compiler."""
    return shutil.which("erlc") is not None


def supervisor2_path() -> str | None:
    """Return where RabbitMQ's supervisor2 is installed."""
    found = sorted(Path("/usr/lib/rabbitmq").glob("lib/*/plugins/rabbit_common*/ebin"))
    return str(found[-1]) if found else None


def traces(scenarios: list[Scenario], folder: Path) -> list[list[str]]:
    """Return the traces of the real supervisors, one for each scenario.

    Args:
        scenarios: those of supervisor2 need RabbitMQ.
        folder: for the compiled oracle and its input.

    Raises:
        RuntimeError: it gave no trace for a scenario.
    """
    if not scenarios:
        return []
    subprocess.run(["erlc", "-o", str(folder), str(SOURCE)], check=True, timeout=TIMEOUT_S)
    path = supervisor2_path()
    command = ["erl", "-noshell", "+S", "1", "-pa", str(folder), *(["-pa", path] if path else [])]
    nodes = []
    try:
        for n in range(NODES):
            plays = folder / f"scenarios{n}"
            lines = (_line(i, s) for i, s in enumerate(scenarios) if i % NODES == n)
            plays.write_text("\n".join(lines), encoding="utf-8")
            argv = [*command, "-run", "otp_oracle", "main", str(plays)]
            with (folder / f"traces{n}").open("wb") as stdout:  # a pipe would fill up and stop it
                nodes.append(subprocess.Popen(argv, stdout=stdout))
        for node in nodes:
            node.wait(timeout=TIMEOUT_S)
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    output = "".join((folder / f"traces{n}").read_text("utf-8") for n in range(NODES))
    found = dict(line.split("|", 1) for line in output.splitlines() if "|" in line)
    missing = [number for number in range(len(scenarios)) if str(number) not in found]
    if missing:
        raise RuntimeError(f"no trace of {missing[:5]}: {output[:500]!r}")
    return [found[str(number)].split() for number in range(len(scenarios))]


def _line(number: int, scenario: Scenario) -> str:
    scenario = checked(scenario)
    actions = [_action(*action) for action in scenario["actions"]]
    return _term((number, *_tree(scenario), actions)) + "."


def _tree(scenario: Scenario) -> tuple[Any, ...]:
    return (scenario["module"], _flags(scenario), [_child(row) for row in scenario["children"]])


def _flags(scenario: Scenario) -> tuple[Any, ...]:
    keys = ("strategy", "intensity", "period", "auto_shutdown")
    return tuple(scenario["flags"][key] for key in keys)


def _child(row: dict[str, Any]) -> tuple[Any, ...]:
    default = 5000 if row["type"] == "worker" else "infinity"
    shutdown = default if row["shutdown"] is None else row["shutdown"]
    plan: tuple[Any, ...] = (list(row["starts"]), row["on_shutdown"])
    if row["tree"] is not None:
        plan = ("tree", *_tree(row["tree"]))
    return (row["id"], row["restart"], row["significant"], shutdown, row["type"], plan)


def _action(name: str, subject: Any, *rest: Any) -> tuple[Any, ...]:
    if name == "burst":
        subject = [_action(*step) for step in subject]
    elif isinstance(subject, dict):
        subject = _child(subject)
    return (SHORT.get(name, name), subject, *rest)


def _term(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, tuple | list):
        inside = ",".join(map(_term, value))
        return f"{{{inside}}}" if isinstance(value, tuple) else f"[{inside}]"
    return str(value)


def differences(
    scenarios: list[Scenario], play: Callable[[Scenario], list[list[str]]], folder: Path
) -> list[str]:
    """Compare the traces of ``play`` with those of the real supervisors; return the differences.

    The real ones run in real time, and on a busy machine something may not have settled when the oracle
    looks: it looks again at what differs.
    """
    found = [(scenario, play(scenario)) for scenario in scenarios]
    different: list[str] = []
    for _ in range(2):
        real = traces([scenario for scenario, _ in found], folder)
        pairs = zip(found, real, strict=True)
        unequal = [(one, expected) for one, expected in pairs if not _all_equal(*one, expected)]
        found = [one for one, _ in unequal]
        different = [_describe(*one, expected) for one, expected in unequal]
    return different


def _all_equal(scenario: Scenario, ours: list[list[str]], real: list[str]) -> bool:
    return all(are_equal(scenario, real, trace) for trace in ours)


def _describe(scenario: Scenario, ours: list[list[str]], real: list[str]) -> str:
    lines = [f"ours: {' '.join(trace)}" for trace in ours]
    return "\n".join([str(scenario), f"real: {' '.join(real)}", *lines])
