"""The programs of the pages about testing are tests that pass.

Tests: testing/virtual_time.py
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = "pytester"

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["testing.md", "chaos.md"])
def test_the_programs_of_the_pages_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    programs = re.findall(
        r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )
    pytester.makepyfile(**{f"test_{at}": program for at, program in enumerate(programs)})
    tests = sum(program.count("\ndef test_") for program in programs)

    result = pytester.runpytest_subprocess("--strict-markers", timeout=120)

    result.assert_outcomes(passed=tests)
