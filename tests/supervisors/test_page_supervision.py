"""The programs of docs/supervision.md run and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "supervision.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = re.findall(
    r"```python\n((?:(?!```).)*?)```(?:(?!```).)*```text\n(.*?)```", PAGE, re.DOTALL
)
CRASH = "actor crashed actor="


def test_the_page_has_its_programs() -> None:
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize(("code", "printed"), PROGRAMS)
def test_the_programs_print_what_the_page_says(tmp_path: Path, code: str, printed: str) -> None:
    example = tmp_path / "example.py"
    example.write_text(code, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-W", "error", "-P", str(example)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={"PYTHONIOENCODING": "utf-8", "PATH": ""},
        timeout=30,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert CRASH in done.stderr
    assert "/leveret/" not in done.stderr


@pytest.mark.parametrize("block", BLOCKS)
def test_the_other_blocks_are_python(block: str) -> None:
    inside = "".join(f"    {line}\n" for line in block.splitlines())

    compile(f"async def page():\n{inside}", "supervision.md", "exec")


def test_what_the_page_imports_is_there() -> None:
    import leveret.supervisors

    names = re.findall(r"^from leveret\.supervisors import (.*)$", PAGE, re.MULTILINE)
    for name in ", ".join(names).split(", "):
        assert hasattr(leveret.supervisors, name)
