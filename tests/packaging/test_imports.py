"""What the embedding API loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rigs.nodes import clean_environment

PROBE = """
import sys
from leveret.server import Broker
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def _probe(folder: Path) -> set[str]:
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
    return set(out)


def test_the_embedding_api_is_light(tmp_path: Path) -> None:
    heavy = {"aiohttp", "pyspark", "uvloop", "rich", "hypothesis", "pytest", "amqp"}

    assert not _probe(tmp_path) & heavy
