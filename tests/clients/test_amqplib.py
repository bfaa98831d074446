"""Node's amqplib, where node and the package are there (NODE_PATH, or installed globally)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rigs.nodes import BrokerUnderTest, clean_environment
from rigs.programs import run

SESSION = Path(__file__).with_name("amqplib_session.js")


def _is_installed() -> bool:
    return (
        bool(shutil.which("node"))
        and not subprocess.run(
            ["node", "-e", "require('amqplib')"],
            env=clean_environment(),
            capture_output=True,
            check=False,
        ).returncode
    )


@pytest.mark.skipif(not _is_installed(), reason="node has no amqplib")
def test_amqplib(broker: BrokerUnderTest, tmp_path: Path, name: str) -> None:
    printed = run(["node", str(SESSION), broker.url, name], tmp_path)

    steps = SESSION.read_text().count("\n  async '")
    assert printed.count("ok ") == steps == 5
