"""One small session of Spark for all tests that need one; without Java they are skipped, in CI they fail."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session that retries tasks twice, with the data source registered."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        why = "Spark needs Java 17 or newer: apt install openjdk-17-jre-headless"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    from leveret.spark import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    started = session("local[2,3]", **SETTINGS)
    yield started
    started.stop()
