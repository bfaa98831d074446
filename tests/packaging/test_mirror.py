"""A reader finds the tests of a module, and the rig that a test needs.

The tests of ``broker/script.py`` are ``tests/broker/test_script.py``, or test files whose first docstring has a line
``Tests: broker/script.py``; it may name several modules.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PACKAGES = [link.resolve() for link in (ROOT / "leveret").iterdir() if link.is_symlink()]
NAMED = re.compile(r"^Tests: (.+(?:\n    .+)*)", re.MULTILINE)


def test_the_tests_of_each_module_are_found_by_its_path() -> None:
    hidden = [
        module
        for module in _modules_with_code()
        if not (TESTS / module).with_name(f"test_{Path(module).name}").is_file()
    ]
    named = _named()

    assert [module for module in hidden if module not in named] == []


def test_the_lines_of_test_files_name_modules_once() -> None:
    assert [module for module in _named() if not (ROOT / module).is_file()] == []
    assert [(module, files) for module, files in _named().items() if max(files.values()) > 1] == []


def test_each_file_of_the_rigs_has_one_line_in_their_index() -> None:
    index = re.findall(r"^- `([^`]+)`: .", (TESTS / "rigs/README.md").read_text(), re.MULTILINE)
    rigs = [path.relative_to(TESTS / "rigs").as_posix() for path in TESTS.glob("rigs/**/*.py")]

    assert sorted(index) == sorted(rigs)


def _modules_with_code() -> list[str]:
    return [
        file.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for file in sorted(package.rglob("*.py"))
        if file.name != "__init__.py" and _has_code(file)
    ]


def _has_code(file: Path) -> bool:
    """Say whether a function of the file does something: protocols and constants have nothing to test."""
    functions = [
        each
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return any(not _is_constant(each) for function in functions for each in function.body)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _named() -> dict[str, Counter[Path]]:
    named: dict[str, Counter[Path]] = {}
    for file in TESTS.rglob("test_*.py"):
        head = ast.get_docstring(ast.parse(file.read_text())) or ""
        for line in NAMED.findall(head):
            for module in re.findall(r"[^\s,]+", line):
                named.setdefault(module, Counter())[file] += 1
    return named
