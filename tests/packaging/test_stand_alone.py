"""``leveret.supervisors`` is of use without the broker and loads nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rigs.nodes import clean_environment

BROKERS = {
    "amqp",
    "routing",
    "broker",
    "server",
    "metadata",
    "msg_store",
    "queue_backing",
    "testing",
}
FOREIGN = {"lmdb", "msgspec", "google_crc32c", "pcre2", "rich", "aiohttp", "uvloop", "pytest"}


def loaded_by(folder: Path, statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "from leveret.supervisors import Supervisor, ChildSpec",
        "from leveret.supervisors import Tree, run, start, ready, Metrics, Backoff",
        "from leveret.supervisors import *",
    ],
)
def test_supervisors_load_no_broker(tmp_path: Path, statement: str) -> None:
    loaded = loaded_by(tmp_path, statement)

    assert not loaded & ({f"leveret.{name}" for name in BROKERS} | FOREIGN)
    # Thespian's actor classes are the base of ours; none of its systems is loaded.
    assert not {name for name in loaded if "SystemBase" in name or "multiproc" in name}


def test_supervisors_without_processes_load_no_msgpack(tmp_path: Path) -> None:
    assert "msgpack" not in loaded_by(tmp_path, "from leveret.supervisors import Tree, run")


@pytest.mark.parametrize("module", ["core", "spec", "groups", "dynamic", "backoff"])
def test_the_kernel_loads_no_event_loop_and_no_thespian(tmp_path: Path, module: str) -> None:
    loaded = loaded_by(tmp_path, f"import leveret.supervisors.{module}")

    assert not loaded & {"asyncio", "thespian", "leveret.actors"}
