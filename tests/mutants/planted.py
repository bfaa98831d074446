"""Faults planted in a tree of the package, and a part of the suite run on it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mutants.pieces import files_of, find, put, tree_of

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "actors",
    "broker",
    "etcd",
    "gm",
    "metadata",
    "mirroring",
    "msg_store",
    "queue_backing",
    "routing",
)


class Mutant(NamedTuple):
    """In a scope of the product the piece ``old`` becomes ``new``, or goes (``pieces``)."""

    scope: str
    old: str
    new: str

    def places(self) -> list[str]:
        """Return the file of each place that the fault could have."""
        files = files_of(self.scope, tuple(ROOT / name for name in COPIED))
        return [
            str(file.relative_to(ROOT)) for file in files for _ in find(tree_of(file), file, *self)
        ]

    def planted(self, file: Path) -> str:
        """Return the text of the file with the fault in it."""
        tree = ast.parse(file.read_text())
        (place,) = find(tree, file, *self)
        return ast.unparse(put(tree, place, self.new))


class Faults(NamedTuple):
    """Faults of one part.

    Attributes:
        mutants: by the name of their fault.
        suite: the tests that must find each of them, below ``tests``.
    """

    mutants: dict[str, Mutant]
    suite: Sequence[str]

    def run(
        self, mutant: Mutant | None, folder: Path, seed: int
    ) -> subprocess.CompletedProcess[str]:
        """Run the suite, the first failure of which ends it, on a tree with the fault in it, if any."""
        _plant(mutant, folder)
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


def _plant(mutant: Mutant | None, folder: Path) -> None:
    """Make ``folder/leveret``, which is the package with the fault in it."""
    package = folder / "leveret"
    package.mkdir(parents=True)
    for path in (ROOT / "leveret").iterdir():
        if path.name not in COPIED:
            (package / path.name).symlink_to(path.resolve())
    for name in COPIED:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, package / name, ignore=ignore)
    if mutant is not None:
        (place,) = mutant.places()
        (package / place).write_text(mutant.planted(ROOT / place))
