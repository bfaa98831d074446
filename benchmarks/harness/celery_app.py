"""A Celery application whose tasks do nothing, for ``celery_tasks.py``: loaded by the worker, run as the producer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_default_queue=os.environ["BENCH_QUEUE"],
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="nothing")
def nothing() -> None:
    """Do nothing."""


@app.task(name="last")
def last(path: str) -> None:
    """Say that all tasks before this one were done."""
    Path(path).touch()


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        nothing.delay()
    last.delay(sys.argv[2])
