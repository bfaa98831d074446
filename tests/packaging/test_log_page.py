"""Each line that the broker, its stores and its commands can write is on the page of the log."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("broker", "core", "management", "metadata", "msg_store", "queue_backing", "server")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
PAGE = (ROOT / "docs/logging.md").read_text()


def _texts(node: ast.AST, assigned: dict[str, list[ast.AST]]) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, assigned)
        yield from _texts(node.orelse, assigned)
    elif isinstance(node, ast.Name):
        for each in assigned.get(node.id, ()):
            yield from _texts(each, {})


def _logged(file: Path) -> Iterator[str]:
    """Yield the constant texts of a module's log lines."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    assigned: dict[str, list[ast.AST]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, level = called.rpartition(".")
        if called == "audit":
            yield from _texts(node.args[0], {})
        elif owner in {"log", "self._log"} and level in LEVELS:
            yield from _texts(node.args[1 if level == "log" else 0], assigned)


def _event(text: str) -> str:
    """Return the words of a line that no argument changes: those before its first key, or behind a leading value."""
    words = text.removeprefix("%s ").partition("%")[0]
    return re.sub(r" ?[\w-]+=$", "", words).strip(" :(")


@pytest.fixture(scope="module")
def logged() -> dict[str, str]:
    """Return the events of all log lines, and the file of each."""
    return {
        _event(text): str(file.relative_to(ROOT))
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        for text in _logged(file)
    }


OF_ACTORS = {
    "actor crashed", "supervisor report", "link refused", "connection of a node not accepted",
}  # fmt: skip


def test_each_line_of_the_log_is_on_its_page(logged: dict[str, str]) -> None:
    missing = {
        event: file
        for event, file in logged.items()
        if event and not re.search(rf"`(\.\.\. )?{re.escape(event)}\b", " ".join(PAGE.split()))
    }

    assert len(logged) > 90
    assert missing == {}


def test_the_page_has_no_lines_that_nobody_writes(logged: dict[str, str]) -> None:
    tables = re.findall(r"^\| Line \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    named = [
        name
        for row in "".join(tables).splitlines()
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    ]
    known = {*logged, *OF_ACTORS}

    assert [name for name in named if _event(name.removeprefix("... ")) not in known] == []
