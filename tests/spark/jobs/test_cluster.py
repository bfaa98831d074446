"""Jobs on a standalone cluster: with Leveret on its nodes, with ``--py-files``, and with a packed environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from leveret.testing.vhost import FreshVhost
from rigs.nodes import leveret_program
from rigs.spark import cluster
from rigs.spark.jobs import declare, stored_snapshot

pytestmark = [pytest.mark.slow, pytest.mark.spark]

COUNT = 2_000
DRIVER_S = 3_600.0  # for a machine with much else to do
MAIN = "import sys\nfrom leveret.server.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"


def report_of(folder: Path, command: list[str], environment: dict[str, str]) -> Any:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DRIVER_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def test_a_cluster_counts_and_replays_what_one_process_would(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q", "again")
    path = str(stored_snapshot(tmp_path / "data", COUNT))
    environment = cluster.environment(BROKER=amqp_broker.url)
    to_q = ["--exchange", "", "--routing-key-to", "q", "--target-env", "BROKER"]
    many = ["--publishers", "2", "--ledger", str(tmp_path / "ledger"), "--json"]
    with cluster.cluster(tmp_path) as master:
        spark = ["--master", master, *cluster.conf("--conf")]
        leveret = leveret_program()

        counted = report_of(tmp_path, [leveret, "stats", path, "--json", *spark], environment)
        replay = [leveret, "replay", path, *to_q, *many, *spark]
        sent = report_of(tmp_path, replay, environment)
        again = report_of(tmp_path, replay, environment)

        script, package = tmp_path / "submit.py", cluster.package_zip(tmp_path / "leveret.zip")
        script.write_text(MAIN)
        libraries = cluster.without_leveret(tmp_path / "libraries")
        nodes = ["--conf", f"spark.executorEnv.PYTHONPATH={libraries['PYTHONPATH']}"]
        submitted = cluster.words_of(
            cluster.SUBMIT, "--master", master, cluster.conf("--conf"), nodes, "--py-files", package, script,
            "replay", path, "--engine", "spark", "--exchange", "", "--routing-key-to", "again",
            "--target-env", "BROKER", "--json",
        )  # fmt: skip
        zipped = report_of(tmp_path, submitted, environment | libraries)

    assert counted["counts"]["messages"] == COUNT
    assert (sent["counts"]["sent"], again["counts"]["sent"]) == (COUNT, 0)
    assert again["counts"]["skipped"] == COUNT
    assert zipped["counts"]["selected"] == COUNT
    for name in ("q", "again"):
        found = Counter(int(body) for body in amqp_broker.queue(name).bodies)
        assert found == Counter(range(COUNT))
    assert os.listdir(tmp_path / "work0"), "no executor ran on the first worker"
    assert os.listdir(tmp_path / "work1"), "no executor ran on the second worker"


def test_executors_work_with_a_packed_environment_that_the_driver_brings(tmp_path: Path) -> None:
    """The driver plans queries with the interpreter of the executors, so its relative path must hold there too."""
    path = str(stored_snapshot(tmp_path / "data", COUNT))
    packed, unpacked = cluster.packed_environment(tmp_path / "packed"), tmp_path / "packed"
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "environment").symlink_to(unpacked)
    (driver / "job.py").write_text(MAIN)
    environment = cluster.environment() | {"PYSPARK_PYTHON": "./environment/bin/python"}
    with cluster.cluster(tmp_path) as master:
        submitted = cluster.words_of(
            cluster.SUBMIT, "--master", master, cluster.conf("--conf"), "--archives", f"{packed}#environment", "job.py",
            "stats", path, "--engine", "spark", "--json",
        )  # fmt: skip
        counted = report_of(driver, submitted, environment)

    assert counted["counts"]["messages"] == COUNT
    for number in range(2):
        assert [*(tmp_path / f"work{number}").glob("*/*/environment/bin/python")]
