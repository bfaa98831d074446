"""The example of docs/supervision.md runs and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "supervision.md"


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", page, re.DOTALL)
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
    assert "supervisor report context=child_terminated supervisor=shop child=prices" in done.stderr
