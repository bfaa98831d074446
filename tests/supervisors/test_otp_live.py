"""Fresh random scenarios end token by token as on the Erlang that is installed here.

pytest --slow tests/supervisors/test_otp_live.py --seed N
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigs.supervision import oracle
from rigs.supervision.bases import IN_PROCESS, quick_bases_of
from rigs.supervision.generated import generated
from rigs.supervision.scenario_files import Scenario
from supervisors.rules.cases import CASES

SCENARIOS = 1_000

pytestmark = pytest.mark.skipif(not oracle.is_installed(), reason="needs Erlang: erl and erlc")


def play(scenario: Scenario) -> list[list[str]]:
    """Play it on every base where that is quick."""
    return [IN_PROCESS[name](scenario) for name in quick_bases_of(scenario)]


def playable(scenarios: list[Any]) -> list[Any]:
    """Leave out the scenarios of RabbitMQ's supervisor2 where that is not installed."""
    if oracle.supervisor2_path() is not None:
        return scenarios
    return [scenario for scenario in scenarios if scenario["module"] == "supervisor"]


@pytest.mark.slow
def test_random_scenarios_end_as_on_the_real_supervisors(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    first = pytestconfig.getoption("--seed")
    scenarios = playable([generated(first + n) for n in range(SCENARIOS)])

    different = oracle.differences(scenarios, play, tmp_path)

    assert not different, f"{len(different)} of {len(scenarios)}:\n" + "\n".join(different[:3])


@pytest.mark.slow
def test_the_table_of_rules_says_what_the_real_supervisors_do(tmp_path: Path) -> None:
    scenarios = playable([case.scenario for case in CASES if case.is_otps])

    assert not oracle.differences(scenarios, lambda scenario: [scenario["trace"]], tmp_path)
