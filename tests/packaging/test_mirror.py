"""A reader finds the rig that a test needs: `tests/rigs/README.md` has a line for each."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_file_of_the_rigs_has_one_line_in_their_index() -> None:
    index = re.findall(r"^- `([^`]+)`: .", (TESTS / "rigs/README.md").read_text(), re.MULTILINE)
    rigs = [path.relative_to(TESTS / "rigs").as_posix() for path in TESTS.glob("rigs/**/*.py")]

    assert sorted(index) == sorted(rigs)
