"""Pieces of syntax trees: found in a scope of the product, and replaced or dropped.

A **scope** is a module, a class, a function or a method. Its name is the end of its dotted path, as long as it must be
to be the only one: ``Consumers.forget``, ``wal.driver.Driver.close``. A **piece** is code, one expression or some
statements in a row, and is compared by its tree: line breaks, quotes and comments do not matter. ``...`` in it is any
expression, all arguments of a call, or a whole body; in what takes its place the first ``...`` is what the first was,
and so on.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_ANYTHING = ast.dump(ast.Constant(...))


class Place(NamedTuple):
    """A piece in a tree: ``length`` members of a list of its parent, or (``at`` is None) the only node in a field."""

    parent: ast.AST
    field: str
    at: int | None
    length: int
    anything: list[Any]


@cache
def tree_of(file: Path) -> ast.Module:
    """Return the tree of a file, which is not to be changed."""
    return ast.parse(file.read_text())


def files_of(scope: str, folders: tuple[Path, ...]) -> list[Path]:
    """Return the files that have a scope of this name: one, if the name is right and long enough."""
    names = scope.split(".")
    return [
        file
        for folder in folders
        for file, known in _names(folder).items()
        if known.issuperset(names) and any(_scopes(tree_of(file), file, scope))
    ]


def find(tree: ast.Module, file: Path, scope: str, old: str, new: str) -> list[Place]:
    """Return the places of the piece ``old`` that may become ``new``; an empty ``new`` drops it."""
    piece = ast.parse(old).body
    is_expression = _is_expression(piece) and (not new or _is_expression(ast.parse(new).body))
    found = []
    for parent in (node for each in _scopes(tree, file, scope) for node in ast.walk(each)):
        for field, value in ast.iter_fields(parent):
            members = value if isinstance(value, list) else [value]
            for at in range(len(members)):
                run = members[at : at + len(piece)]
                sought: list[Any] = list(piece)
                if is_expression and (new or isinstance(run[0], ast.expr)):
                    sought = [piece[0].value]  # type: ignore[attr-defined]
                anything: list[Any] = []
                if (members is value or new) and _is_like(sought, run, anything):
                    place = at if members is value else None
                    found.append(Place(parent, field, place, len(piece), anything))
    return found


def put(tree: ast.Module, place: Place, new: str) -> ast.Module:
    """Return the tree with ``new`` at the place of a piece."""
    value = getattr(place.parent, place.field)
    first = value if place.at is None else value[place.at]
    nodes: list[Any] = ast.parse(new).body
    if nodes and isinstance(first, ast.expr):
        nodes = [nodes[0].value]
    filled = _Filled(place.anything)
    nodes = filled.all(nodes)
    if place.at is None:
        setattr(place.parent, place.field, nodes[0])
    else:
        value[place.at : place.at + place.length] = nodes
    _Tidied().visit(tree)
    return ast.fix_missing_locations(tree)


def _is_expression(piece: list[ast.stmt]) -> bool:
    return len(piece) == 1 and isinstance(piece[0], ast.Expr)


@cache
def _names(folder: Path) -> dict[Path, set[str]]:
    """Return what may be in the dotted path of a scope of each file."""
    return {
        file: {*re.findall(r"(?:def|class) (\w+)", file.read_text()), file.stem, *file.parts}
        for file in sorted(folder.rglob("*.py"))
    }


def _scopes(tree: ast.Module, file: Path, name: str) -> Iterator[ast.AST]:
    """Yield the scopes of that name: more than one, if a property has a setter."""
    modules = ".".join(file.with_suffix("").parts)
    stack: list[tuple[str, Any]] = [(modules, tree)]
    for path, node in stack:
        if path.endswith(f".{name}"):
            yield node
        else:
            stack += [
                (f"{path}.{each.name}", each)
                for each in node.body
                if isinstance(each, _DEFINITIONS) and not isinstance(node, _DEFINITIONS[1:])
            ]


def _is_anything(node: object) -> bool:
    node = node.value if isinstance(node, ast.Expr) else node
    return isinstance(node, ast.Constant) and node.value is ...


def _is_like(sought: Any, there: Any, anything: list[Any]) -> bool:
    """Compare trees, and note what ``...`` stands for."""
    if isinstance(sought, list):
        if len(sought) == 1 and _is_anything(sought[0]) and isinstance(there, list):
            anything.append(there)
            return True
        return (
            isinstance(there, list)
            and len(sought) == len(there)
            and all(_is_like(*pair, anything) for pair in zip(sought, there, strict=True))
        )
    if isinstance(sought, ast.expr) and isinstance(there, ast.expr) and _is_anything(sought):
        anything.append([there])
        return True
    if not isinstance(sought, ast.AST):
        return bool(type(sought) is type(there) and sought == there)
    return type(sought) is type(there) and all(
        _is_like(getattr(sought, field), getattr(there, field, None), anything)
        for field in sought._fields
        if field not in {"ctx", "type_comment"}
    )


class _Filled(ast.NodeTransformer):
    """Each ``...`` becomes what it stood for."""

    def __init__(self, anything: list[Any]) -> None:
        self._anything = iter(anything)

    def all(self, nodes: list[Any]) -> list[Any]:
        filled = []
        for node in nodes:
            after = self.visit(node)
            filled += after if isinstance(after, list) else [after]
        return filled

    def visit_Expr(self, node: ast.Expr) -> Any:
        if _is_anything(node):
            return copy.deepcopy(next(self._anything))
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        if not _is_anything(node):
            return node
        nodes = copy.deepcopy(next(self._anything))
        return nodes if len(nodes) != 1 else nodes[0]


class _Tidied(ast.NodeTransformer):
    """What a dropped piece leaves: an operand is alone without its operator, an empty body has ``pass``."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.BoolOp) and len(node.values) == 1:
            return node.values[0]
        if not isinstance(node, ast.Module) and getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node
