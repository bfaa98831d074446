"""Paged-out messages cost next to no RAM, measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parents[2] / "rigs" / "store" / "transient_worker.py"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_backlog_costs_no_ram(count: int, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-P", str(WORKER), str(tmp_path), str(count)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-2_000:]
    result = json.loads(run.stdout)
    assert result["growth"] < 16_000_000  # messages in flight; the same for any backlog
    assert result["disk_bytes"] > 60 * count  # all of it was there
