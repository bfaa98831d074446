"""Folders, links and layers agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {init.parent.name for init in ROOT.glob("*/__init__.py")} - {"leveret", "tests", "build"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_each_root_package_has_its_link() -> None:
    links = {
        link.name: link.readlink().as_posix()
        for link in (ROOT / "leveret").iterdir()
        if link.is_symlink()
    }

    assert links == {folder: f"../{folder}" for folder in FOLDERS}


def test_the_link_tool_finds_nothing_to_change() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/links.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_each_root_package_has_its_layer() -> None:
    contract = PYPROJECT["tool"]["importlinter"]["contracts"][0]
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    required = {
        name
        for layer in contract["layers"]
        for name in re.findall(r"\w+", re.sub(r"\(\w+\)", "", layer))
    }

    assert contract["exhaustive"] is True
    assert set().union(*layers) >= FOLDERS
    assert required <= FOLDERS


# What services embed and programs of Spark import, loaded name by name when asked for.
LAZY = {ROOT / folder / "__init__.py" for folder in ("gm", "server", "spark", "supervisors")}


def test_package_initialisers_load_nothing_of_ours() -> None:
    """A folder's ``__init__.py`` has a docstring; three offer names, and those lazily."""
    for folder in sorted(FOLDERS):
        for init in (ROOT / folder).rglob("__init__.py"):
            text = init.read_text()
            forbidden = r"^(import|from) leveret" if init in LAZY else r"^(import|from) "
            assert text.startswith('"""'), init
            assert not re.search(forbidden, text, re.MULTILINE), init


LINES_MAX = 700
# Each has one state; in several files the parts would write each other's fields.
CORES = {
    "actors/runtime/scheduler.py",
    "broker/queue/amqqueue.py",
    "queue_backing/variable/queue.py",
}
CORE_LINES_MAX = 1_600


def test_no_file_is_longer_than_agreed() -> None:
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    too_long = {
        file: count
        for file, count in lines.items()
        if count > (CORE_LINES_MAX if file in CORES else LINES_MAX)
    }

    assert too_long == {}
    assert {file for file in CORES if lines[file] <= LINES_MAX} == set()


def test_all_lines_of_the_log_are_counted_and_printable() -> None:
    """``leveret.core.log.loggers.logger`` is the way to a logger: names of clients stand in log lines."""
    own = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS - {"examples"}
        for path in (ROOT / folder).rglob("*.py")
        if "getLogger(__name__)" in path.read_text()
    }

    assert own == set()


def test_tests_are_found_by_path_not_as_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []
