"""Workers of pytest take whole files (``rigs/workers.py``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILE = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(8))
def test_it(number):
    with pathlib.Path("{seen}").open("a") as seen:
        seen.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_a_file_is_run_by_one_worker_and_all_of_spark_by_one(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    )
    for name, seen in {"a": "a", "b": "b", "spark/c": "spark", "spark/d": "spark"}.items():
        file = tmp_path / f"tests/{name}_test.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FILE.format(seen=tmp_path / seen))

    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "loadfile",
            "-p",
            "rigs.workers",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        check=True,
        capture_output=True,
    )

    seen = {name: (tmp_path / name).read_text().split() for name in ("a", "b", "spark")}
    assert {name: len(workers) for name, workers in seen.items()} == {"a": 8, "b": 8, "spark": 16}
    assert [len(set(workers)) for workers in seen.values()] == [1, 1, 1]
