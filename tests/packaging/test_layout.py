"""Folders, links, layers and the built packages agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

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
TOP_LEVEL = ROOT / "spark" / "_autoload"  # modules that are found by their names


def test_package_initialisers_load_nothing_of_ours() -> None:
    """A folder's ``__init__.py`` has a docstring; three offer names, and those lazily."""
    for folder in sorted(FOLDERS):
        for init in (ROOT / folder).rglob("__init__.py"):
            text = init.read_text()
            forbidden = r"^(import|from) leveret" if init in LAZY else r"^(import|from) "
            assert text.startswith('"""'), init
            assert not re.search(forbidden, text, re.MULTILINE), init


def test_no_file_is_longer_than_agreed() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 700
    }

    assert too_long == {}


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


def _files_of_packages() -> set[str]:
    ours = {"leveret/__init__.py", "leveret/__main__.py", "leveret/py.typed"}
    for folder in FOLDERS:
        ours |= {
            path.name if path.parent == TOP_LEVEL else f"leveret/{path.relative_to(ROOT)}"
            for path in (ROOT / folder).rglob("*.py")
        }
    sources = (path for folder in FOLDERS for path in (ROOT / folder).rglob("_kernel_c*.p*"))
    return ours | {f"leveret/{path.relative_to(ROOT)}" for path in sources}


def _build(source: Path, into: Path, *, compile_: str) -> None:
    """Build in a copy of the committed and changed files, so that the checkout stays as it is."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(into),
        str(source),
    ]
    environment = os.environ | {"LEVERET_COMPILE": compile_, "PYTHONSAFEPATH": "1"}
    subprocess.run(command, env=environment, check=True, cwd=into)


def _copy_of_the_checkout(to: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    for raw in filter(None, listed):
        relative = Path(os.fsdecode(raw))
        source, target = ROOT / relative, to / relative
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return to


def _names_in_wheel(folder: Path) -> set[str]:
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_the_folders_hold(tmp_path: Path) -> None:
    checkout = _copy_of_the_checkout(tmp_path / "checkout")
    direct, over_sdist, unpacked = (tmp_path / part for part in ("direct", "over", "unpacked"))
    for folder in (direct, over_sdist, unpacked):
        folder.mkdir()

    _build(checkout, direct, compile_="0")
    subprocess.run(
        [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('dist')"],
        cwd=checkout,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        check=True,
        capture_output=True,
    )
    (sdist,) = (checkout / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    _build(source, over_sdist, compile_="auto")

    names = _names_in_wheel(over_sdist)
    compiled = {name for name in names if name.endswith(".so")}
    assert _names_in_wheel(direct) == names - compiled == _files_of_packages()
    kernels = {
        f"leveret/{path.relative_to(ROOT).with_suffix('')}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("_kernel_c.pyx")
    }
    assert {name.split(".")[0] for name in compiled} <= kernels
