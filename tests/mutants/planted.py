"""Faults planted in a tree of the package, and a part of the suite run on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("actors", "broker", "etcd", "gm", "metadata", "msg_store", "queue_backing", "routing")


class Mutant(NamedTuple):
    """``old`` in a file becomes ``new``."""

    file: str
    old: str
    new: str


class Faults(NamedTuple):
    """Faults of one part.

    Attributes:
        folder: where the mutants' files are, below the root.
        mutants: by the name of their fault.
        suite: the tests that must find each of them, below ``tests``.
        harmless: a mutant that changes nothing, with which the suite passes.
    """

    folder: str
    mutants: dict[str, Mutant]
    suite: Sequence[str]
    harmless: Mutant

    def count(self, mutant: Mutant) -> int:
        """Return how often the mutant's place is there."""
        return (ROOT / self.folder / mutant.file).read_text().count(mutant.old)

    def run(self, mutant: Mutant, folder: Path, seed: int) -> subprocess.CompletedProcess[str]:
        """Run the suite, the first failure of which ends it, on a tree with the fault in it."""
        self._plant(mutant, folder)
        options = ["-x", "-q", "--hypothesis-profile=first", "-p", "no:cacheprovider", "-c"]
        options += [str(ROOT / "pyproject.toml"), f"--seed={seed}"]
        tests = [str(ROOT / "tests" / name) for name in self.suite]
        return subprocess.run(
            [sys.executable, "-P", "-m", "pytest", *options, *tests],
            cwd=folder,
            env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def _plant(self, mutant: Mutant, folder: Path) -> None:
        """Make ``folder/leveret``, which is the package with the fault in it."""
        package = folder / "leveret"
        package.mkdir(parents=True)
        for path in (ROOT / "leveret").iterdir():
            if path.name not in COPIED:
                (package / path.name).symlink_to(path.resolve())
        for name in COPIED:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, package / name, ignore=ignore)
        file = package / self.folder / mutant.file
        file.write_text(file.read_text().replace(mutant.old, mutant.new))
