from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "actors.md"


def test_the_examples_of_the_page_run_and_print_what_they_should(capsys: Any) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5

    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "page"})

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("counter ends: Crash(TypeError")
    assert lines[1] == "hello world"
