"""Links in the documents lead to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert missing == []


def test_the_example_of_the_readme_is_short() -> None:
    example = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]

    assert len([line for line in example.splitlines() if line]) <= 5
    compile(example, "README.md", "exec")
