"""The bases that scenarios are played on: the core alone, actors on virtual time, Thespian's bases.

On Thespian's bases time is real. On its process bases each child is a process, and a kill is ``SIGKILL``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from leveret.supervisors.supervisor import Supervisor
from rigs.supervision.player import FakeDriver, Plan, Player
from rigs.supervision.runtime_base import RuntimeBase
from rigs.supervision.scenario_files import BURST, TIME, TREES, Scenario, needs_of, to_spec
from rigs.supervision.thespian_base import ThespianBase
from rigs.supervision.thespian_children import ASYNCIO, SIMPLE, TCP, UDP, actor_system


def plan_of(row: dict[str, Any]) -> Plan:
    """Return how the child of this row of a scenario behaves."""
    return Plan(list(row["starts"]), row["on_shutdown"])


def play_on_core(scenario: Scenario) -> list[str]:
    """Play with scripted children that are no actors."""
    return Player(scenario, FakeDriver, lambda row: (plan_of(row), ())).play()


def play_on_actors(scenario: Scenario, starts_later: bool = False) -> list[str]:
    """Play with actors; nothing of them is left afterwards.

    Args:
        scenario: to play.
        starts_later: whether children acknowledge their start after ``init``.
    """
    runner = RuntimeBase(starts_later)

    def start_of(row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        if row["tree"] is not None:
            return Supervisor, (runner.watched(to_spec(row["tree"], start_of)),)
        return runner.actor_class, (runner, row["id"], plan_of(row))

    try:
        trace = Player(scenario, runner.boot_with, start_of).play()
    finally:
        runner.close()
    assert runner.runtime.actor_count == 0
    assert runner.clock.pending_count == 0
    return trace


def play_on_late_actors(scenario: Scenario) -> list[str]:
    """Play with actors that acknowledge their start after ``init``."""
    return play_on_actors(scenario, starts_later=True)


def play_on_thespian(base: str, scenario: Scenario) -> list[str]:
    """Play with actors of one of Thespian's system bases, in a system of their own."""
    with TemporaryDirectory() as folder, actor_system(base) as system:
        runner = ThespianBase(Path(folder), system)
        return Player(scenario, runner.boot_with, runner.start_of).play()


IN_PROCESS: Final[dict[str, Callable[[Scenario], list[str]]]] = {
    "core": play_on_core,
    "actors": play_on_actors,
    "late actors": play_on_late_actors,
    "thespian": partial(play_on_thespian, SIMPLE),
    "asyncio base": partial(play_on_thespian, ASYNCIO),
}
PROCESSES: Final[dict[str, Callable[[Scenario], list[str]]]] = {
    "TCP": partial(play_on_thespian, TCP),
    "UDP": partial(play_on_thespian, UDP),
}
BASES: Final = IN_PROCESS | PROCESSES
LACKS: Final[dict[str, set[str]]] = {"core": {TREES}}
NOT_QUICK: Final = {BURST, TIME}  # on Thespian's simple base


def bases_of(scenario: Scenario, bases: Iterable[str] = BASES) -> list[str]:
    """Return those of ``bases`` that can play it."""
    needs = needs_of(scenario)
    return [name for name in bases if not needs & LACKS.get(name, set())]


def quick_bases_of(scenario: Scenario) -> list[str]:
    """Return those on which hundreds of scenarios can be played, which is not where time is real."""
    real = {"asyncio base", *(["thespian"] if needs_of(scenario) & NOT_QUICK else [])}
    return [name for name in bases_of(scenario, IN_PROCESS) if name not in real]
