"""No name of a client reaches the terminal raw, whatever the command and the format.

Tests: server/output/formats.py
"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from leveret.server.output import formats
from leveret.server.output.terminal import show

ROOT = Path(__file__).parents[3]
NASTY = 'a\x1b[2Jb\x9bc\x85d\u202ee\x7ff\ng\udcffh"i\\'
SHOWN = r'a\x1b[2Jb\x9bc\x85d\u202ee\x7ff\ng\udcffh"i' + "\\"


def is_safe(text: str) -> bool:
    return all(each.isprintable() or each in "\n\t" for each in text)


@pytest.mark.parametrize("formatter", formats.FORMATTERS)
def test_rows_of_every_format_are_safe(formatter: str) -> None:
    found = [{"name": NASTY, "arguments": [[NASTY, "longstr", NASTY]]}]

    text = formats.rows(formatter, ("name", "arguments"), found)

    assert is_safe(text)
    assert "\\x1b" in text or "\\u001b" in text


def test_json_has_the_name_itself() -> None:
    ((row,), line) = (json.loads(text := formats.rows("json", ("name",), [{"name": NASTY}])), text)

    assert row == {"name": NASTY}
    assert r"a\u001b[2Jb\u009bc\u0085d\u202ee\u007ff\ng\udcffh" in line


def test_json_leaves_printable_text_as_it_is() -> None:
    assert formats.json_line({"name": "größe 中 \U0001f407"}) == '{"name":"größe 中 \U0001f407"}\n'


def test_json_escapes_beyond_the_first_plane_stay_json() -> None:
    hidden = "\U000e0041"  # a tag: text that no terminal shows

    assert json.loads(formats.json_line([hidden])) == [hidden]
    assert is_safe(formats.json_line([hidden]))


def test_csv_has_one_line_and_cell_for_each_value() -> None:
    text = formats.rows("csv", ("name", "vhost"), [{"name": NASTY, "vhost": "/"}])

    assert list(csv.reader(io.StringIO(text))) == [["name", "vhost"], [SHOWN, "/"]]


def test_show_keeps_the_layout_and_escapes_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    show("a\tb\nc\x1b[2J \x85\r\u202e")

    assert capsys.readouterr().out == "a\tb\nc\\x1b[2J \\x85\\r\\u202e\n"


def test_every_command_prints_by_show() -> None:
    """A bare ``print`` would print a name as it is."""
    own = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "server").rglob("*.py")
        if re.search(r"(?<![\w.])print\(|sys\.std(out|err)\.write", path.read_text())
    }

    assert own == {"server/output/terminal.py"}
