"""Links in the documents lead to existing files, and the walks to functions that call each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_are_headings(page: Path) -> None:
    anchors = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())
    missing = [
        (link, anchor)
        for link, anchor in anchors
        if anchor not in _headings(page.parent / link if link else page)
    ]

    assert missing == []


def _headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_heads_of_folders_name_existing_modules() -> None:
    packages = [each.resolve() for each in (ROOT / "leveret").iterdir() if each.is_symlink()]
    files = [file for package in packages for file in package.rglob("*")] + packages
    known = {file.stem for file in files} | {"child_spec", "leveret", "rabbit_backing_queue"}
    heads = {
        file: ast.get_docstring(ast.parse(file.read_text())) or ""
        for file in files
        if file.name == "__init__.py"
    }
    unknown = [
        (str(file.relative_to(ROOT)), name)
        for file, head in heads.items()
        for name in re.findall(r"``([a-z_]+)``", head)
        if name not in known
    ]

    assert unknown == []


# A row of a walk: | [file](../file) `function` | its caller | its step |

WALK = (ROOT / "docs/README.md").read_text()
ROW = re.compile(
    r"^\| \[[^]]+\]\(\.\./([^)]+\.py)\) `([\w.]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
CALLER = re.compile(
    r"(↑|`(?P<caller>[\w.]+)`|[a-z ]+?)"  # the row above, a row further up, or none of the code
    r"( mail `(?P<mail>\w+)`)?"
    r"( as `(?P<attribute>\w+)`)?(, set in `(?P<setter>[\w.]+)`)?"
)
CONSTRUCTORS = {"init", "__init__", "__aenter__"}
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Step(NamedTuple):
    file: str
    function: str
    caller: str
    text: str
    before: dict[str, str]  # the functions of the rows further up, and their files


def _steps() -> list[Step]:
    steps: list[Step] = []
    before: dict[str, str] = {}
    above = ""
    for file, function, called_by, text in ROW.findall(WALK):
        caller = called_by.replace("↑", f"`{above}`")
        steps.append(Step(file, function, caller, text, dict(before)))
        before[function], above = file, function
    return steps


STEPS = _steps()


def test_every_row_of_the_walks_names_a_function() -> None:
    rows = [line for line in WALK.splitlines() if line.startswith("| [")]

    assert len(STEPS) == len(rows) > 80


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.function)
def test_a_function_of_the_walks_is_called_as_its_row_says(step: Step) -> None:
    called = CALLER.fullmatch(step.caller)
    assert called, f"the caller of {step.function} is not named: {step.caller}"
    name = step.function.rpartition(".")[2]
    names = {name, step.function.split(".")[0]} if name in CONSTRUCTORS else {name}
    assert _definition(step.file, step.function), f"{step.function} is not in {step.file}"

    if called["setter"]:
        file = step.before.get(called["setter"], step.file)
        assert names & _identifiers(file, called["setter"]), f"{called['setter']} does not set it"
        names = {called["attribute"]}
    elif called["mail"]:
        table = rf"\b{called['mail']}: (\w+\.)?{name}\b"
        is_handled = re.search(table, (ROOT / step.file).read_text())
        handled = _identifiers(step.file, step.function)
        assert is_handled or called["mail"] in handled, f"{name} does not handle the mail"
        names = {called["mail"]}
    if called["caller"]:
        file = step.before[called["caller"]]
        assert names & _identifiers(file, called["caller"]), f"{called['caller']} does not call it"


def test_names_in_the_texts_of_the_walks_are_in_the_files() -> None:
    missing = [
        (step.file, name)
        for step in STEPS
        for name in re.findall(r"`(_?[a-z]+(?:_[a-z]+)+)`", step.text)
        if name not in (ROOT / step.file).read_text()
    ]

    assert missing == []


def _definition(file: str, name: str) -> ast.stmt | None:
    scope: list[ast.stmt] = ast.parse((ROOT / file).read_text()).body
    definition = None
    for part in name.split("."):
        found = [each for each in scope if isinstance(each, DEFINITIONS) and each.name == part]
        if not found:
            return None
        definition, scope = found[0], found[0].body
    return definition


def _identifiers(file: str, function: str) -> set[str]:
    """Return the names in a function, and those in the constants of the module that it uses."""
    definition = _definition(file, function)
    assert definition is not None, f"{function} is not in {file}"
    names = used = _names(definition)
    for each in ast.parse((ROOT / file).read_text()).body:
        if isinstance(each, ast.AnnAssign) and _names(each.target) & used:
            names = names | _names(each)
    return names


def _names(tree: ast.AST) -> set[str]:
    found = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}


def test_members_of_classes_that_the_documents_name_exist() -> None:
    members: dict[str, set[str]] = {}
    for folder in filter(Path.is_symlink, (ROOT / "leveret").iterdir()):
        for file in folder.resolve().rglob("*.py"):
            for each in ast.walk(ast.parse(file.read_text())):
                if isinstance(each, ast.ClassDef):
                    methods = {one.name for one in ast.walk(each) if isinstance(one, DEFINITIONS)}
                    members.setdefault(each.name, set()).update(_names(each), methods)
    named = {
        (page.name, *span)
        for page in PAGES
        for span in re.findall(r"`([A-Z]\w+)\.(\w+)", page.read_text())
    }

    assert [each for each in named if each[2] not in members.get(each[1], {each[2]})] == []


def test_the_example_of_the_readme_is_short() -> None:
    example = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]

    assert len([line for line in example.splitlines() if line]) <= 5
    compile(example, "README.md", "exec")


# Constants that a page names beside the module that has them: `NAME`, `NAME` ([file](../path/file.py))

CONSTANTS = re.compile(r"((?:`[A-Z_]+`(?:, )?)+) \(\[[^]]+\]\(\.\./([^)]+\.py)\)\)")


def test_constants_of_the_budgets_are_in_the_modules_beside_them() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    named = [
        (name, file)
        for names, file in CONSTANTS.findall(page)
        for name in re.findall(r"\w+", names)
    ]

    missing = [
        (name, file)
        for name, file in named
        if not re.search(rf"^{name}: Final", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert len(named) > 20
    assert missing == []
