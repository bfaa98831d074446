"""Which form of the message's path is imported, and what ``setup.py`` may compile."""

from __future__ import annotations

import ast
import json
import sys
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from leveret.core.compiled_path import (
    CompiledFinder,
    choose_form,
    compiled_modules,
    form_of_path,
    why_sources,
)
from leveret.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
SOURCE = "broker/writer.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose only compiled module is up to date."""
    package = tmp_path / "leveret"
    source = package / SOURCE
    source.parent.mkdir(parents=True)
    source.write_text("A = 1\n")
    compiled = package / "_compiled/broker"
    compiled.mkdir(parents=True)
    (compiled / f"writer{EXTENSION_SUFFIXES[0]}").touch()
    hashes = {SOURCE: sha256(source.read_bytes()).hexdigest()}
    manifest = {"modules": ["broker.writer"], "sources": hashes, "why_not": ""}
    (package / "_compiled/manifest.json").write_text(json.dumps(manifest))
    finders = [each for each in sys.meta_path if not isinstance(each, CompiledFinder)]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delenv("LEVERET_COMPILED", raising=False)
    return package


def test_modules_that_are_up_to_date_are_imported_compiled(package: Path) -> None:
    choose_form(package)

    finder = sys.meta_path[0]
    assert isinstance(finder, CompiledFinder)
    assert compiled_modules() == {"leveret.broker.writer"}
    assert form_of_path() == "compiled"
    spec = finder.find_spec("leveret.broker.writer", None)
    assert spec is not None
    assert spec.origin == str(package / f"_compiled/broker/writer{EXTENSION_SUFFIXES[0]}")
    assert finder.find_spec("leveret.broker.reader", None) is None


@pytest.mark.parametrize("change", ["edit", "remove", "other Python"])
def test_what_is_out_of_date_is_not_used(package: Path, change: str) -> None:
    if change == "edit":
        (package / SOURCE).write_text("A = 2\n")
    elif change == "remove":
        (package / SOURCE).unlink()
    else:
        next(package.glob("_compiled/broker/*")).rename(
            package / "_compiled/broker/writer.cpython-30.so"
        )

    choose_form(package)

    with pytest.warns(RuntimeWarning, match="older than its sources"):
        assert not compiled_modules()
    assert sys.meta_path[0].find_spec("leveret.broker.writer", None) is None


def test_the_sources_are_taken_on_demand(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_COMPILED", "0")

    choose_form(package)

    assert not compiled_modules()
    assert form_of_path() == "sources"


def test_without_compiled_modules_the_sources_run(package: Path) -> None:
    (package / "_compiled/manifest.json").unlink()

    choose_form(package)

    assert not compiled_modules()


def test_a_demand_for_compiled_modules_fails_without_them(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_COMPILED", "require")
    choose_form(package)
    (package / "_compiled/manifest.json").unlink()

    with pytest.raises(ImportError, match="LEVERET_COMPILE=require"):
        choose_form(package)


def test_an_installation_that_could_not_compile_says_why(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = {"modules": [], "sources": {}, "why_not": "no C compiler"}
    (package / "_compiled/manifest.json").write_text(json.dumps(manifest))

    choose_form(package)

    assert not compiled_modules()
    assert why_sources(package) == "no C compiler"
    monkeypatch.setenv("LEVERET_COMPILED", "require")
    with pytest.raises(ImportError, match="no C compiler"):
        choose_form(package)


def test_nothing_is_said_where_the_sources_were_asked_for(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_sources(package) == ""
    (package / "_compiled/manifest.json").unlink()
    assert why_sources(package) == ""
    (package / "_compiled/manifest.json").write_text('{"why_not": "no C compiler"}')
    monkeypatch.setenv("LEVERET_COMPILED", "0")
    assert why_sources(package) == ""


def test_another_value_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_COMPILED", "yes")

    with pytest.raises(ConfigError, match="'yes', not 0 or require"):
        choose_form(package)


def _path() -> list[str]:
    """Return the files that ``setup.py`` may compile."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PATH":
            modules: list[str] = ast.literal_eval(node.value)
            return modules
    raise AssertionError("setup.py has no PATH")


_TREES = {module: ast.parse((ROOT / module).read_text()) for module in _path()}
_CLASSES = [
    node for tree in _TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
]


@pytest.mark.parametrize("made", _CLASSES, ids=lambda made: made.name)
def test_no_class_of_a_compiled_module_is_one_that_mypyc_makes_wrongly(made: ast.ClassDef) -> None:
    """mypyc leaves out the keywords of a class, such as ``eq=False``, and takes no base that it does not know.

    It knows ``ABC``, but gives the objects a dict and weak references, and tests their fields; ``ABCMeta`` does not.
    """
    foreign = {"Struct", "Actor", "ActorAddress", "ABC"}

    assert {ast.unparse(each.value) for each in made.keywords} <= {"ABCMeta"}
    assert not foreign.intersection(map(ast.unparse, made.bases))


def test_what_may_be_none_and_has_a_length_says_itself_whether_it_is_true() -> None:
    """Where a class may be None, and has no ``__bool__``, mypyc takes an instance for true and asks no ``__len__``."""
    methods = {
        made.name: {each.name for each in made.body if isinstance(each, ast.FunctionDef)}
        for made in _CLASSES
        if "Protocol" not in map(ast.unparse, made.bases)
    }
    wrong = {name for name, own in methods.items() if "__len__" in own and "__bool__" not in own}
    for module, tree in _TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":
                assert not wrong & set(ast.unparse(node.left).split(" | ")), (
                    f"{module}: {node.lineno}"
                )


def test_a_generator_expression_is_consumed_where_it_stands() -> None:
    """mypyc makes a list of it at once: what a later turn shall do would be done in this one."""
    consumers = {"all", "any", "dict.fromkeys", "list", "max", "min", "sorted", "sum", "tuple"}
    for module, tree in _TREES.items():
        consumed = {
            id(argument)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in consumers
            for each in node.args
            for argument in (each, getattr(each, "value", None))  # itself, or starred
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.GeneratorExp):
                assert id(node) in consumed, f"{module}: {node.lineno}"
