"""Links in the documents lead to existing files, and the walk through the code to existing functions."""

from __future__ import annotations

import ast
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


WALK = (ROOT / "docs/README.md").read_text()
STEPS = re.findall(r"^\| \[[^]]+\]\(\.\./([^)]+\.py)\) `([\w.]+)` \|", WALK, re.MULTILINE)


def test_every_row_of_the_walk_names_a_function() -> None:
    rows = [line for line in WALK.splitlines() if line.startswith("| [")]

    assert len(STEPS) == len(rows) > 50


@pytest.mark.parametrize(("file", "name"), STEPS)
def test_the_functions_of_the_walk_are_in_their_files(file: str, name: str) -> None:
    scope: list[ast.stmt] = ast.parse((ROOT / file).read_text()).body
    for part in name.split("."):
        definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [each for each in scope if isinstance(each, definitions) and each.name == part]
        assert found, f"{name} is not in {file}"
        scope = found[0].body


def test_the_example_of_the_readme_is_short() -> None:
    example = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]

    assert len([line for line in example.splitlines() if line]) <= 5
    compile(example, "README.md", "exec")
