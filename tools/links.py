"""Make the links in ``leveret/`` that show the root folders as its packages, or check them.

Run from anywhere: ``python tools/links.py`` makes missing links and removes dead ones; with ``--check`` it
only reports them, and exits 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = {"leveret", "tests", "build"}


def wanted() -> dict[str, str]:
    """Return link name -> target for each root folder that is a package."""
    folders = {init.parent.name for init in ROOT.glob("*/__init__.py")} - NOT_OURS
    return {folder: f"../{folder}" for folder in folders}


def present() -> dict[str, str]:
    """Return link name -> target as they are in ``leveret/``."""
    return {
        link.name: link.readlink().as_posix()
        for link in (ROOT / "leveret").iterdir()
        if link.is_symlink()
    }


def problems() -> list[str]:
    """Name every link that is missing, wrong or too many."""
    want, have = wanted(), present()
    return sorted(
        f"leveret/{name}: is {have.get(name, 'missing')}, should be {want.get(name, 'absent')}"
        for name in want.keys() | have.keys()
        if want.get(name) != have.get(name)
    )


def repair() -> None:
    """Bring the links to what ``wanted`` says."""
    want, have = wanted(), present()
    for name in have.keys() - {name for name, target in want.items() if have.get(name) == target}:
        (ROOT / "leveret" / name).unlink()
    for name, target in want.items():
        if have.get(name) != target:
            (ROOT / "leveret" / name).symlink_to(target)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="change nothing, exit 1 if wrong")
    if not arguments.parse_args().check:
        repair()
    found = problems()
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
