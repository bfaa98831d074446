"""A standalone cluster of Spark on the loopback interface: a master and workers, from PySpark's wheel."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

import leveret
from rigs.nodes import clean_environment
from rigs.programs import Background

HOME = Path(pyspark.__file__).parent
SUBMIT = HOME / "bin" / "spark-submit"
PACKAGE = Path(leveret.__file__).parent
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
}
JAVA_S = 600.0  # for a machine with much else to do; a failed start shows in the output


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a master and workers of one core; yields the master's URL. Their processes end with the block."""
    spark_class = str(HOME / "bin" / "spark-class")
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        command = [spark_class, "org.apache.spark.deploy.master.Master", *host, "--port", "0"]
        master = stack.enter_context(Background(command, folder, "master.log"))
        text = master.wait_for("I have been elected leader", timeout_s=JAVA_S)
        found = re.search(r"spark://127\.0\.0\.1:\d+", text)
        assert found, text
        for number in range(workers):
            place = [
                "--cores",
                "1",
                "--memory",
                "768m",
                "--work-dir",
                str(folder / f"work{number}"),
            ]
            command = [
                spark_class,
                "org.apache.spark.deploy.worker.Worker",
                *host,
                *place,
                found[0],
            ]
            worker = stack.enter_context(Background(command, folder, f"worker{number}.log"))
            worker.wait_for("Successfully registered with master", timeout_s=JAVA_S)
        yield found[0]


def environment(**more: str) -> dict[str, str]:
    """The environment of a driver that runs beside the cluster."""
    return clean_environment(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, **more)


def conf(flag: str) -> list[str]:
    """Return the settings as arguments of a command."""
    return [word for name, value in CONF.items() for word in (flag, f"{name}={value}")]


def package_zip(path: Path) -> Path:
    """Write Leveret as a zip for ``--py-files``; compiled modules cannot be imported from one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, names, files in os.walk(PACKAGE, followlinks=True):
            names[:] = [name for name in names if name != "__pycache__"]
            for file in files:
                if file.endswith(".py"):
                    whole = Path(folder, file)
                    archive.write(whole, Path("leveret", whole.relative_to(PACKAGE)))
    return path


def without_leveret(folder: Path) -> dict[str, str]:
    """Return the environment of an interpreter that has all libraries but Leveret, as a node without it has."""
    folder.mkdir(parents=True)
    for entry in Path(pyspark.__file__).parents[1].iterdir():
        if "leveret" not in entry.name and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    python = Path(sys.base_prefix, "bin", "python3")
    return {"PYTHONPATH": str(folder), "PYSPARK_PYTHON": str(python)}


def packed_environment(folder: Path) -> Path:
    """Write an interpreter with Leveret for ``--archives``, as venv-pack does it; return the archive.

    It can be unpacked anywhere on this machine: the libraries in it are links to those of the tests.
    """
    libraries = without_leveret(folder / "lib")["PYTHONPATH"]
    shutil.copytree(
        PACKAGE, Path(libraries, "leveret"), ignore=shutil.ignore_patterns("__pycache__")
    )
    program = folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nhere=$(cd "$(dirname "$0")/.." && pwd)\n'
        f'PYTHONPATH="$here/lib:$PYTHONPATH" exec {Path(sys.base_prefix, "bin", "python3")} "$@"\n'
    )
    program.chmod(0o755)
    path = folder.with_suffix(".tar.gz")
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, ".")
    return path


def words_of(*words: str | Path | Sequence[str]) -> list[str]:
    """Return arguments, sequences of them among them, as one list."""
    return [
        text
        for word in words
        for text in ([str(word)] if isinstance(word, str | Path) else list(word))
    ]
