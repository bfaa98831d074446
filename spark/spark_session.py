"""Sessions of Spark that can read snapshots."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leveret.core.errors import ConfigError
from leveret.spark.source import NAME, LeveretDataSource

PYSPARK_MIN: Final = (4, 2)
_SETTINGS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit
# The last line of a traceback: the error's class and text.
_ERROR: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*): (.+)")
_NO_JVM: Final = "JAVA_GATEWAY_EXITED"
_LOCAL_SETTINGS: Final = {"spark.ui.enabled": "false"}


def register(spark: SparkSession) -> None:
    """Add ``format("leveret")`` to a session; needed wherever Spark does not find it by itself (docs/spark.md).

    Raises:
        ConfigError: this PySpark is too old.
    """
    _check_version()
    spark.dataSource.register(LeveretDataSource)


def session(master: str | None = "local[*]", **settings: str) -> SparkSession:
    """Start a session, or take the existing one, with the data source and quiet logs.

    Args:
        master: where it runs, as for ``spark-submit --master``; None: as spark-submit was told.
        settings: of Spark, such as ``**{"spark.driver.memory": "4g"}``; they win over those made here.

    Raises:
        ConfigError: Java is missing, this PySpark is too old, or Spark does not start.
    """
    _check_version()
    if SparkSession.getActiveSession() is None and SUBMITTED not in os.environ:
        _check_java()
    defaults = dict(_SETTINGS)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else python3 of PATH
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults |= _LOCAL_SETTINGS
    builder = SparkSession.builder.appName("leveret")
    if master is not None:
        builder = builder.master(master)
    for name, value in (defaults | settings).items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        reason = reason_of(str(error))
        if _NO_JVM in reason:
            reason = "its Java process, of Java 17 or newer, has ended at once; its own lines stand above"
        raise ConfigError(f"Spark does not start: {reason}") from error
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
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        place = f"in JAVA_HOME ({home})" if home else "on PATH, nor JAVA_HOME"
        raise ConfigError(
            f"Spark needs Java 17 or newer, and there is no program java {place}: install one "
            "(Debian, Ubuntu: apt install openjdk-17-jre-headless), or do without Spark: jobs with --engine local, "
            "programs with leveret.spark.scan.reader.read"
        )


def reason_of(text: str) -> str:
    """Return the reason from the text of a failure: Leveret's error, or the last error of Python's tracebacks."""
    lines = [line.strip(" :") for line in text.splitlines() if line.strip()]
    named = [found for line in lines if (found := _ERROR.match(line))]
    for found in named:
        if found[1].startswith("leveret."):
            return found[2]
    if named:
        return f"{named[-1][1]}: {named[-1][2]}"
    return lines[0] if lines else "Spark gave no reason"
