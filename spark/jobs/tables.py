"""Rows of a report as tables that fit a terminal: columns that do not fit go into a further table below.

The leading text columns, such as vhost and queue, name a row, and each table repeats them. Long texts are shortened.
Values too long for a cell (lists, objects, commands to copy) follow the tables in full, with the number of their row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from leveret.core.printable import printable

_INDENT: Final = "  "
_GAP: Final = "  "
_TEXT_MIN: Final = 8
_WHOLE: Final = frozenset({"command"})
_MORE: Final = "…"


def tables(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Return the rows as lines for a terminal of this width."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    whole = [name for name in names if name in _WHOLE or any(map(_is_nested, _column(rows, name)))]
    cells = {name: _column(rows, name) for name in names if name not in whole}
    if whole:
        cells = {"#": list(range(1, len(rows) + 1))} | cells
    lines: list[str] = []
    for block in blocks(cells, width - len(_INDENT)):
        lines += [*([""] if lines else []), *_table(block)]
    for number, row in enumerate(rows, 1):
        for name in whole:
            if name in row:
                lines += _after(f"{number}. {name}: ", row[name], width)
    return lines


def blocks(cells: Mapping[str, Sequence[Any]], width: int) -> list[dict[str, list[str]]]:
    """Return the columns of each table by name, so that no table is wider than ``width``."""
    names = ["#", *names_of(cells)] if "#" in cells else names_of(cells)
    columns = {name: _texts(name, column, width) for name, column in cells.items()}
    keys = {name: columns.pop(name) for name in names}
    room = width - max((len(column[0]) + len(_GAP) for column in columns.values()), default=0)
    longest = width
    while _width(keys) > room and longest > _TEXT_MIN:
        longest -= 1
        keys = {name: _texts(name, cells[name], longest) for name in names}
    found = [dict(keys)]
    for name, column in columns.items():
        if len(found[-1]) > len(keys) and _width(found[-1]) + len(_GAP) + len(column[0]) > width:
            found.append(dict(keys))
        found[-1][name] = column
    return found


def names_of(cells: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns that name a row: the leading texts."""
    return list(
        takewhile(lambda name: _is_text(cells[name]), (each for each in cells if each != "#"))
    )


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    return [row.get(name) for row in rows]


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _is_text(column: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, str) for value in column)


def _texts(name: str, column: Sequence[Any], longest: int) -> list[str]:
    """Return the texts of a column, its name first, padded to the same width."""
    cells = [name, *map(_cell, column)]
    if _is_text(column):
        cells = [each if len(each) <= longest else each[: longest - 1] + _MORE for each in cells]
    wide = _widest(cells)
    return [each.ljust(wide) if _is_text(column) else each.rjust(wide) for each in cells]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value))


def _widest(texts: Sequence[str]) -> int:
    return max(map(len, texts))


def _width(block: Mapping[str, Sequence[str]]) -> int:
    return sum(len(column[0]) + len(_GAP) for column in block.values()) - len(_GAP)


def _table(block: Mapping[str, Sequence[str]]) -> list[str]:
    lines = zip(*block.values(), strict=True)
    return [f"{_INDENT}{_GAP.join(line)}".rstrip() for line in lines]


def _after(head: str, value: Any, width: int) -> list[str]:
    """Return the lines of a value that is too long for its table; a text is one line, so that it can be copied."""
    if isinstance(value, str):
        return [f"{_INDENT}{head}{printable(value)}"]
    items = (
        [f"{name}={each}" for name, each in value.items()] if isinstance(value, Mapping) else value
    )
    text = ", ".join(printable(str(each)) for each in items)
    return textwrap.wrap(
        f"{head}{text or 'none'}",
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT * 3,
        break_on_hyphens=False,
    )
