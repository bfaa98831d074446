"""``setup.py`` and LEVERET_COMPILE, with and without a C compiler, in a copy of the kernels' sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_COMPILER = {"CC": "/bin/false"}

pytest.importorskip("Cython")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "leveret"
    sources = (
        path for folder in ("amqp", "msg_store") for path in (ROOT / folder).rglob("_kernel_c*")
    )
    kernels = [path.relative_to(ROOT) for path in sources if path.suffix in {".pyx", ".pxi"}]
    packages = {parent for path in kernels for parent in path.parents if parent.name}
    inits = [package / "__init__.py" for package in packages]
    files = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "leveret/__init__.py")
    for name in (*files, *inits, *kernels):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture
def small_tree(tree: Path) -> Path:
    """The same with kernels of one line, for what does not depend on their content."""
    for kernel in tree.rglob("_kernel_c.pyx"):
        kernel.write_text("answer = 42\n")
    return tree


def build(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out", "--build-temp", "temp"],
        cwd=tree,
        env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def built(tree: Path) -> set[str]:
    out = tree / "out" / "leveret"
    return {path.relative_to(out).parts[0] for path in out.rglob("_kernel_c*.so")}


def test_without_a_compiler_the_package_is_made_without_the_extension(small_tree: Path) -> None:
    done = build(small_tree, LEVERET_COMPILE="auto", **NO_COMPILER)

    assert done.returncode == 0, done.stderr
    assert built(small_tree) == set()
    assert "nothing is compiled without a C compiler and Python's headers (Debian" in done.stderr


def test_required_and_without_a_compiler_it_fails(small_tree: Path) -> None:
    done = build(small_tree, LEVERET_COMPILE="require", **NO_COMPILER)

    assert done.returncode != 0
    assert "/bin/false" in done.stderr


def test_switched_off_it_does_not_even_try(small_tree: Path) -> None:
    done = build(small_tree, LEVERET_COMPILE="0", **NO_COMPILER)

    assert done.returncode == 0, done.stderr
    assert "ythoniz" not in done.stdout + done.stderr


def test_cython_that_cannot_read_the_source_is_no_obstacle_unless_required(
    small_tree: Path,
) -> None:
    (small_tree / "amqp/_kernel_c.pyx").write_text("cdef class 1:\n")

    optional = build(small_tree, LEVERET_COMPILE="kernel")
    required = build(small_tree, LEVERET_COMPILE="require")

    assert optional.returncode == 0, optional.stderr
    assert "amqp/_kernel_c.pyx is not compiled" in optional.stderr
    assert required.returncode != 0


def test_a_misspelt_choice_is_refused_with_the_choices(small_tree: Path) -> None:
    done = build(small_tree, LEVERET_COMPILE="yes")

    assert done.returncode != 0
    assert "LEVERET_COMPILE is 'yes', must be one of auto, kernel, 0, require" in done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_extensions_compile_without_a_warning(tree: Path) -> None:
    done = build(tree, LEVERET_COMPILE="kernel", CFLAGS="-Wall -Wextra -Wno-unused-parameter")

    assert done.returncode == 0, done.stderr
    assert built(tree) == {"amqp", "msg_store"}
    assert "warning" not in (done.stdout + done.stderr).lower()
