"""Sessions of Spark that can read snapshots."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Final

import pyspark
from pyspark.sql import DataFrame, SparkSession

from leveret.core.errors import ConfigError
from leveret.spark.source import NAME, LeveretDataSource

PYSPARK_MIN: Final = (4, 2)
_SETTINGS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_LOCAL_SETTINGS: Final = {"spark.ui.enabled": "false"}


def register(spark: SparkSession) -> None:
    """Add ``format("leveret")`` to a session; needed wherever Spark does not find it by itself (docs/spark.md).

    Raises:
        ConfigError: this PySpark is too old.
    """
    _check_version()
    spark.dataSource.register(LeveretDataSource)


def session(master: str | None = "local[*]", **settings: str) -> SparkSession:
    """Start a session, or take the one there is, with the data source and quiet logs.

    Args:
        master: where it runs, as for ``spark-submit --master``; None: as spark-submit was told.
        settings: of Spark, such as ``**{"spark.driver.memory": "4g"}``; they win over those made here.

    Raises:
        ConfigError: Java is missing, or this PySpark is too old.
    """
    _check_version()
    defaults = dict(_SETTINGS)
    if master is not None and master.startswith("local"):
        _check_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else python3 of PATH
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults |= _LOCAL_SETTINGS
    builder = SparkSession.builder.appName("leveret")
    if master is not None:
        builder = builder.master(master)
    for name, value in (defaults | settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def read_snapshot(spark: SparkSession, *paths: str | os.PathLike[str], **options: Any) -> DataFrame:
    """Return the messages of snapshots, or another view of them.

    Args:
        spark: a session; the data source is added if it is not there.
        paths: of the snapshots.
        options: as in docs/spark.md: ``view="index"``, ``queue="orders.*"``, ``verifyCrc=False``.
    """
    register(spark)
    reader = spark.read.format(NAME)
    for name, value in options.items():
        reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return reader.load([os.fspath(path) for path in paths])


def _check_version() -> None:
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < PYSPARK_MIN:
        raise ConfigError(
            f"PySpark {pyspark.__version__} is too old: pip install 'leveret[spark]' takes one from 4.2 on"
        )


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.path.exists(f"{home}/bin/java")):
        raise ConfigError(
            "Spark needs Java 17 or newer, and there is no program java on PATH nor JAVA_HOME: install one "
            "(Debian, Ubuntu: apt install openjdk-17-jre-headless), or read without Spark: "
            "leveret.spark.scan.reader.read"
        )
