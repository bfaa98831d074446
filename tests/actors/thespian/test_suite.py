"""Thespian's own test suite passes on ``AsyncioBase``."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("modules", "count"),
    [(QUICK, 60), (FAILURES, 12), (WAITS, 16)],
    ids=["quick", "failures", "waits"],
)
def test_the_shorter_parts_of_thespians_suite_pass(
    modules: set[str], count: int, tmp_path: Path
) -> None:
    outcomes = run(modules, tmp_path, timeout_s=300)

    assert [name for name, outcome in outcomes.items() if outcome == "failed"] == []
    assert len(outcomes) >= count


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
