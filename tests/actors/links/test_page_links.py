"""The program of docs/links.md and the example of three nodes run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rigs.programs import ended

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "links.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "page.py").write_text(program)
    done = ended([sys.executable, "-W", "error", "page.py"], tmp_path)

    said = re.search(r"It prints (.*)\.\n", PAGE)
    assert said is not None
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == re.findall(r"`(.*?)`", said[1])


def test_the_log_of_three_nodes_survives_the_death_of_one(tmp_path: Path) -> None:
    program = ROOT / "examples" / "replicated_log_nodes.py"
    done = ended([sys.executable, "-W", "error", str(program)], tmp_path, timeout_s=240)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("ann and cem have the same entries")
