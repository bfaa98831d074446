"""Thespian's own test suite passes on ``AsyncioBase``.

Tests: actors/thespian/external.py, actors/thespian/handling.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rigs.supervision.thespian_suite import (
    FAILURES,
    KNOWN_FAILURES,
    MODULES,
    ORDER,
    QUICK,
    WAITS,
    run,
)

SHORTER = {"quick": (QUICK, 60), "failures": (FAILURES, 12), "waits": (WAITS, 16)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Run the shorter parts side by side, as they mostly wait."""

    def outcomes_of(part: str) -> dict[str, str]:
        return run(SHORTER[part][0], folders[part], timeout_s=300)

    folders = {part: tmp_path_factory.mktemp(part) for part in SHORTER}
    with ThreadPoolExecutor(len(SHORTER)) as pool:
        return dict(zip(SHORTER, pool.map(outcomes_of, SHORTER), strict=True))


@pytest.mark.parametrize("part", SHORTER)
def test_the_shorter_parts_of_thespians_suite_pass(
    part: str, outcomes: dict[str, dict[str, str]]
) -> None:
    assert [name for name, outcome in outcomes[part].items() if outcome == "failed"] == []
    assert len(outcomes[part]) >= SHORTER[part][1]


@pytest.mark.slow
def test_what_depends_on_order_passes_with_late_threads(tmp_path: Path) -> None:
    outcomes = run(ORDER, tmp_path, timeout_s=300, has_late_threads=True)

    assert [name for name, outcome in outcomes.items() if outcome == "failed"] == []
    assert "passed" in outcomes.values()


@pytest.mark.slow
def test_thespians_suite_passes(tmp_path: Path) -> None:
    outcomes = run(set(MODULES), tmp_path, timeout_s=1_500)

    failed = {name.split("::")[-1] for name, outcome in outcomes.items() if outcome == "failed"}
    passed = [name for name, outcome in outcomes.items() if outcome == "passed"]
    assert failed <= set(KNOWN_FAILURES)
    assert len(passed) >= 417
