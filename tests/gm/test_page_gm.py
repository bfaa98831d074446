"""The program of docs/gm.md and the example run.

Tests: gm/group.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rigs.programs import ended

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gm.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_prints_each_message_once_per_member(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "page.py").write_text(program)
    done = ended([sys.executable, "-W", "error", "page.py"], tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("to all") == 2
    assert done.stdout.count("all have it") == 2


def test_the_replicated_log_agrees_with_itself(tmp_path: Path) -> None:
    done = ended([sys.executable, str(ROOT / "examples" / "replicated_log.py")], tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    ann, cem = (line.partition(" has ")[2] for line in done.stdout.splitlines())
    assert sorted(ann) == sorted(cem)
