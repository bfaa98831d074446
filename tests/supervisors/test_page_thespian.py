"""The examples of docs/thespian.md and examples/supervise_thespian.py run and print the expected lines."""

from __future__ import annotations

import re
from pathlib import Path

from rigs.programs import python

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_page_run_and_print_what_they_should(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "thespian.md").read_text(encoding="utf-8")
    program = tmp_path / "example.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))

    assert python(program, folder=tmp_path) == "parse\nshutdown\nhello\n"


def test_killed_processes_are_started_again_in_the_example(tmp_path: Path) -> None:
    printed = python(ROOT / "examples" / "supervise_thespian.py", folder=tmp_path)

    assert printed.splitlines() == [
        "read is as it was",
        "parse was started again",
        "write was started again",
        "ended: shutdown",
    ]
