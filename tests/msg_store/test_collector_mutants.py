"""The suite finds the faults that the collector could have: each is planted and must be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector_mutants import MUTANTS
from planted import run_suite
from transient_mutants import ROOT, Mutant, plant

HERE = Path(__file__).parent
SUITE = tuple(
    HERE / f"test_collector{part}.py" for part in ("_choice", "_copy", "", "_faults", "_crash")
)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_fault_has_its_place(mutant: Mutant) -> None:
    text = (ROOT / "msg_store" / mutant.file).read_text()

    assert text.count(mutant.old) == 1


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_suite_kills(mutant: Mutant, tmp_path: Path, seed: int) -> None:
    plant(mutant, tmp_path)

    run = run_suite(tmp_path, SUITE, seed)

    assert run.returncode == 1, run.stdout[-2_000:] + run.stderr[-500:]


@pytest.mark.slow
def test_without_a_fault_the_planted_tree_passes(tmp_path: Path, seed: int) -> None:
    plant(Mutant("collector.py", "MERGES_MAX", "MERGES_MAX"), tmp_path)

    run = run_suite(tmp_path, SUITE, seed)

    assert run.returncode == 0, run.stdout[-2_000:] + run.stderr[-500:]
