"""Recorded scenarios end token by token as on Erlang's and RabbitMQ's supervisors.

The core is played with scripted children, and supervisors and children are real actors: on virtual
time, and on Thespian's simple base. ``LEVERET_OTP_TRACES`` names another file to play instead of the 397 of
``data/otp_traces.json``.

Tests: supervisors/groups.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigs.supervision.bases import (
    IN_PROCESS,
    LACKS,
    NOT_QUICK,
    play_on_actors,
    play_on_core,
    play_on_thespian,
    quick_bases_of,
)
from rigs.supervision.generated import generated
from rigs.supervision.scenario_files import (
    Scenario,
    UnknownScenarioError,
    are_equal,
    checked,
    read,
    scenarios,
)
from rigs.supervision.thespian_children import SIMPLE


@pytest.mark.parametrize("scenario", list(scenarios(LACKS["core"])))
def test_the_core_gives_the_recorded_trace(scenario: Scenario) -> None:
    trace = play_on_core(scenario)

    assert are_equal(scenario, trace, scenario["trace"]), (trace, scenario["trace"])


@pytest.mark.parametrize("starts_later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("scenario", list(scenarios()))
def test_real_actors_give_the_recorded_trace(scenario: Scenario, starts_later: bool) -> None:
    trace = play_on_actors(scenario, starts_later)

    assert are_equal(scenario, trace, scenario["trace"]), (trace, scenario["trace"])


@pytest.mark.parametrize("scenario", list(scenarios(NOT_QUICK)))
def test_actors_of_thespian_give_the_recorded_trace(scenario: Scenario) -> None:
    trace = play_on_thespian(SIMPLE, scenario)

    assert are_equal(scenario, trace, scenario["trace"]), (trace, scenario["trace"])


def test_all_bases_give_random_scenarios_the_same_trace(pytestconfig: pytest.Config) -> None:
    first = pytestconfig.getoption("--seed")
    for scenario in (generated(first + n) for n in range(200)):
        traces = [IN_PROCESS[base](scenario) for base in quick_bases_of(scenario)]
        assert all(trace == traces[0] for trace in traces), scenario


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"module": "supervisor3"}, "unknown module: 'supervisor3'"),
        ({"seed": 1}, "unknown key of a scenario: 'seed'"),
        ({"flags": {"mood": "good"}}, "unknown flag: 'mood'"),
        ({"children": [{"id": "a", "hibernate": 1}]}, "unknown key of a child: 'hibernate'"),
        ({"children": [{"id": "a", "starts": ["late"]}]}, "unknown outcome of a start: 'late'"),
        ({"children": [{"id": "a", "on_shutdown": "x"}]}, "unknown on_shutdown: 'x'"),
        ({"actions": [["suspend", "a"]]}, r"unknown action: \['suspend', 'a'\]"),
        ({"actions": [["burst", [["sleep", 1]]]]}, "unknown step of a burst: 'sleep'"),
    ],
)
def test_what_the_player_does_not_know_fails_by_name(
    change: dict[str, Any], complaint: str
) -> None:
    scenario = {"module": "supervisor", "flags": {}, "children": [], "actions": [], "trace": []}

    with pytest.raises(UnknownScenarioError, match=complaint):
        checked({**scenario, **change})


@pytest.mark.parametrize("content", [{}, [], [{"module": "supervisor"}], ["a"]])
def test_a_file_of_anything_else_is_refused(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(content), encoding="utf-8")

    with pytest.raises(UnknownScenarioError, match=r"traces\.json"):
        read(path)


@pytest.mark.parametrize("base", IN_PROCESS)
@pytest.mark.parametrize(
    ("change", "token"),
    [
        ({"flags": {"intensity": -1}}, "STARTERR:{supervisor_data,{invalid_intensity,-1}}"),
        ({"flags": {"strategy": "simple_one_for_one"}}, "STARTERR:bad_start_spec"),
        ({"children": [{"id": "a"}, {"id": "a"}]}, "STARTERR:start_spec"),
        ({"children": [{"id": "a", "restart": "intrinsic"}]}, "STARTERR:start_spec"),
        ({"children": [{"id": "a", "starts": ["err"]}]}, "STARTERR:failed:a"),
    ],
)
def test_starts_that_fail_are_told_as_the_oracle_tells_them(
    change: dict[str, Any], token: str, base: str
) -> None:
    scenario = {"module": "supervisor", "flags": {}, "children": [], "actions": [], **change}

    assert IN_PROCESS[base](scenario)[-1] == token
