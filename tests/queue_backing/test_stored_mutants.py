"""The suite finds the faults that a queue over a store could have: each is planted and must be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from planted import ROOT, run_suite
from stored_mutants import MUTANTS, Mutant, plant

HERE = Path(__file__).parent
SUITE = [
    HERE.parent / "msg_store" / "test_content_reader.py",
    HERE / "test_row_window.py",
    HERE / "test_damaged_contents.py",
    HERE / "test_stored_index.py",
    HERE / "test_stored_damage.py",
    HERE / "test_stored_crashes.py",
    HERE / "test_stored_queue_model.py",
    HERE / "test_backing_contract.py",
]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_fault_has_its_place(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()

    assert text.count(mutant.old) == 1


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_suite_kills(mutant: Mutant, tmp_path: Path, seed: int) -> None:
    plant(mutant, tmp_path)

    run = run_suite(tmp_path, SUITE, seed)

    assert run.returncode == 1, run.stdout[-2_000:] + run.stderr[-500:]


@pytest.mark.slow
def test_without_a_fault_the_planted_tree_passes(tmp_path: Path, seed: int) -> None:
    plant(Mutant("queue_backing/row_window.py", "ROWS", "ROWS"), tmp_path)

    run = run_suite(tmp_path, SUITE, seed)

    assert run.returncode == 0, run.stdout[-2_000:] + run.stderr[-500:]
