"""What the embedding API loads, and how long it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nodes import clean_environment

PROBE = """
import sys, time
started = time.process_time()
from leveret.server import Broker
took = time.process_time() - started
print(took, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def _probe(folder: Path) -> tuple[float, set[str]]:
    environment = clean_environment(PYTHONPYCACHEPREFIX=str(folder))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has bytecode
    out = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return float(out[0]), set(out[1:])


def test_the_embedding_api_is_light(tmp_path: Path) -> None:
    """CPU time, best of three: the first may have to write bytecode."""
    probes = [_probe(tmp_path) for _ in range(3)]

    assert not probes[0][1] & {
        "aiohttp",
        "pyspark",
        "uvloop",
        "rich",
        "hypothesis",
        "pytest",
        "amqp",
    }
    assert min(took for took, _ in probes) < 0.2
