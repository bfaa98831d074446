"""The program and the table of settings of docs/cluster.md."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from leveret.metadata.etcd.session_settings import SessionSettings
from rigs.cluster.etcd import Etcd
from rigs.programs import ended

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_shows_a_row_on_both_nodes(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with Etcd(tmp_path / "etcd") as etcd:
        program = program.replace("http://127.0.0.1:2379", etcd.url)
        (tmp_path / "page.py").write_text(program)
        done = ended([sys.executable, "-W", "error", "page.py"], tmp_path, timeout_s=120.0)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "error: None\non the other node: ['orders']\n"


def test_every_setting_has_its_line_and_its_default() -> None:
    table = PAGE.partition("\n## Settings\n")[2].partition("\n## ")[0]
    found = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", table, re.MULTILINE))
    found.pop("SessionSettings", None)

    assert found == {
        field.name: f"{field.default:g}"
        if isinstance(field.default, int | float)
        else field.default
        for field in dataclasses.fields(SessionSettings)
    }
