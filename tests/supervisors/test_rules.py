"""The table of rules, played on each base; a rule that no scenario can show has a test by its number.

Where children are processes, the first case of each rule is always played on TCP, all are on TCP and UDP with
``--slow``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigs.supervision.bases import BASES, IN_PROCESS, PROCESSES, bases_of
from rigs.supervision.scenario_files import are_equal
from rigs.supervision.thespian_children import LEAVES_SOCKETS
from supervisors.rules.cases import CASES
from supervisors.rules.notation import Case
from supervisors.rules.table import RULES

TESTS = Path(__file__).parent
PLAYED = {78}  # by test_otp_traces.py and test_otp_live.py
FIRST = {rule: str(case) for case in reversed(CASES) for rule in case.rules}.values()


def cases_on(cases: Iterable[Case], bases: Iterable[str]) -> list[Any]:
    """Return each of these cases with each of these bases that can play it."""
    return [
        pytest.param(case, base, id=f"{case} [{base}]")
        for case in cases
        for base in bases_of(case.scenario, bases)
    ]


pytestmark = LEAVES_SOCKETS  # of a test before, perhaps of another file


@pytest.mark.parametrize(("case", "base"), cases_on(CASES, IN_PROCESS))
def test_the_case_goes_as_its_rules_say(case: Case, base: str) -> None:
    trace = BASES[base](case.scenario)

    expected = case.scenario["trace"]
    assert are_equal(case.scenario, trace, expected), (trace, expected)


@pytest.mark.parametrize(
    ("case", "base"), cases_on([case for case in CASES if str(case) in FIRST], ["TCP"])
)
def test_the_first_case_of_each_rule_goes_so_where_children_are_processes(
    case: Case, base: str
) -> None:
    test_the_case_goes_as_its_rules_say(case, base)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "base"), cases_on(CASES, PROCESSES))
def test_all_cases_go_so_where_children_are_processes(case: Case, base: str) -> None:
    test_the_case_goes_as_its_rules_say(case, base)


def test_every_rule_is_shown_by_a_case_or_by_a_test_with_its_number() -> None:
    shown = PLAYED.union(*(case.rules for case in CASES), *map(numbers, names_of_tests()))

    missing = [number for number in RULES if number not in shown and "PROCESS" not in RULES[number]]
    assert missing == []
    assert sorted(RULES) == list(range(1, 79))


def test_cases_have_names_of_their_own() -> None:
    names = [str(case) for case in CASES]

    assert len(set(names)) == len(names)


def names_of_tests() -> Iterator[str]:
    for path in TESTS.glob("test_*.py"):
        yield from re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))


def numbers(name: str) -> set[int]:
    """Return the rules in the name of a test: ``test_42_to_45_...``, ``test_61_62_and_68_...``."""
    found: set[int] = set()
    is_range = False
    for word in name.removeprefix("test_").split("_"):
        if word.isdigit():
            first = max(found) if is_range else int(word)
            found.update(range(first, int(word) + 1))
        elif word not in ("and", "to"):
            break
        is_range = word == "to"
    return found
