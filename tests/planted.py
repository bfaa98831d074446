"""Running a part of the suite on a tree of the package in which a fault was planted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_suite(folder: Path, tests: Sequence[Path], seed: int) -> subprocess.CompletedProcess[str]:
    """Run tests, the first failure of which ends it, with ``folder/leveret`` as the package."""
    options = ["-x", "-q", "--hypothesis-profile=first", "-p", "no:cacheprovider", "-c"]
    options += [str(ROOT / "pyproject.toml"), f"--seed={seed}"]
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *options, *map(str, tests)],
        cwd=folder,
        env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
