"""The program and the tables of docs/cluster-store.md."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

from leveret.etcd import errors
from leveret.etcd.errors import ClusterError
from leveret.etcd.settings import EtcdSettings
from rigs.cluster.etcd import Etcd
from rigs.programs import ended

PAGE = (Path(__file__).parents[2] / "docs" / "cluster-store.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_leaves_nothing_in_etcd(
    etcd: Etcd, name: str, tmp_path: Path
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    program = program.replace("http://127.0.0.1:2379", etcd.url).replace("/leveret", f"/{name}")
    (tmp_path / "page.py").write_text(program)
    done = ended([sys.executable, "-W", "error", "page.py"], tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("b'recorded in etcd'") == 2
    found = etcd.post("/v3/kv/range", '{"key":"AA==","range_end":"AA=="}').decode()
    assert f"/{name}/gm/log" not in found


def _words(section: str) -> set[str]:
    table = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {word for cell in cells for word in re.findall(r"`([^`]*)`", cell)}


def test_every_setting_and_every_error_has_its_line() -> None:
    settings = {field.name for field in dataclasses.fields(EtcdSettings)}
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, ClusterError) and value is not ClusterError
    }

    assert _words("Settings") == settings | {"EtcdSettings"}
    assert _words("Errors") == kinds
