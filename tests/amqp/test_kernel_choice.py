"""Which kernel runs.

Tests: core/compiled.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINT_NAME = (
    "from leveret.amqp import kernel;"
    "print(kernel.KERNEL_NAME, kernel.Scanner.__module__, kernel.deliveries.__name__)"
)


def chosen(tmp_path: Path, wanted: str | None, code: str = PRINT_NAME) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name != "LEVERET_KERNEL"}
    environment["PYTHONSAFEPATH"] = "1"
    if wanted is not None:
        environment["LEVERET_KERNEL"] = wanted
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_pure_one_when_it_is_asked_for(tmp_path: Path) -> None:
    assert chosen(tmp_path, "py") == (0, "py leveret.amqp._kernel_py deliveries\n")


@pytest.mark.parametrize("wanted", [None, "", "c"])
def test_the_compiled_one_when_it_is_there(tmp_path: Path, wanted: str | None) -> None:
    pytest.importorskip("leveret.amqp._kernel_c")

    code, output = chosen(tmp_path, wanted)

    assert (code, output.split()[0]) == (0, "c"), output


MISSING = "import sys; sys.modules['leveret.amqp._kernel_c'] = None;" + PRINT_NAME


def test_the_pure_one_when_the_compiled_one_is_not_there(tmp_path: Path) -> None:
    assert chosen(tmp_path, None, MISSING) == (0, "py leveret.amqp._kernel_py deliveries\n")


def test_asking_for_the_compiled_one_that_is_not_there_fails(tmp_path: Path) -> None:
    code, output = chosen(tmp_path, "c", MISSING)

    assert code == 1
    assert "ImportError" in output or "ModuleNotFoundError" in output


STALE = (
    "import sys, types;"
    "module = types.ModuleType('leveret.amqp._kernel_c'); module.SOURCE_HASH = 'old';"
    "sys.modules['leveret.amqp._kernel_c'] = module;"
) + PRINT_NAME


def test_a_compiled_one_older_than_its_source_is_passed_over_with_a_warning(
    tmp_path: Path,
) -> None:
    code, output = chosen(tmp_path, None, STALE)

    assert code == 0
    assert output.startswith("py ")
    assert "older than its source" in output


def test_asking_for_a_compiled_one_that_is_older_than_its_source_fails(tmp_path: Path) -> None:
    assert chosen(tmp_path, "c", STALE)[0] == 1


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    code, output = chosen(tmp_path, "rust")

    assert code == 1
    assert "LEVERET_KERNEL is 'rust', not c or py" in output
