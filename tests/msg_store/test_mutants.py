"""The suite finds the faults that a store is likely to have: each is planted and must be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store_mutants import MUTANTS
from transient_mutants import ROOT, Mutant, plant

HERE = Path(__file__).parent
SUITE = ("test_tables", "test_checkpoint", "test_group_commit", "test_index_machine",
    "test_recovery")  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_fault_has_its_place(mutant: Mutant) -> None:
    text = (ROOT / "msg_store" / mutant.file).read_text()

    assert text.count(mutant.old) == 1


def run_suite(folder: Path, seed: int) -> subprocess.CompletedProcess[str]:
    tests = [str(HERE / f"{name}.py") for name in SUITE]
    options = [
        "-x",
        "-q",
        "--hypothesis-profile=first",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *options, f"--seed={seed}", *tests],
        cwd=folder,
        env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_suite_kills(mutant: Mutant, tmp_path: Path, seed: int) -> None:
    plant(mutant, tmp_path)

    run = run_suite(tmp_path, seed)

    assert run.returncode == 1, run.stdout[-2_000:] + run.stderr[-500:]


@pytest.mark.slow
def test_without_a_fault_the_planted_tree_passes(tmp_path: Path, seed: int) -> None:
    plant(Mutant("tables.py", "BEHIND", "BEHIND"), tmp_path)

    run = run_suite(tmp_path, seed)

    assert run.returncode == 0, run.stdout[-2_000:] + run.stderr[-500:]
