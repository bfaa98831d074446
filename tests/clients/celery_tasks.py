"""The Celery application of ``test_celery.py``: copied into the test's folder, loaded by the workers.

``BROKER_URL``, ``RESULTS`` and ``QUEUE`` come from the environment, so that client and workers agree.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Queue

QUEUE = os.environ["QUEUE"]

app = Celery("tasks", broker=os.environ["BROKER_URL"], backend=os.environ["RESULTS"])
app.conf.update(
    task_default_queue=QUEUE,
    task_queues=[Queue(QUEUE, durable=True)],
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=60,
    control_exchange=f"{QUEUE}-control",
    event_exchange=f"{QUEUE}-events",
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def echo(value: Any) -> Any:
    return value


@app.task
def fail() -> None:
    raise ValueError("as asked")


@app.task(bind=True, max_retries=5, default_retry_delay=0.1)
def succeed_at(self: Any, attempt: int) -> int:
    if self.request.retries + 1 < attempt:
        raise self.retry(exc=RuntimeError("again"))
    return int(self.request.retries)


@app.task(acks_late=True)
def first_time_slow(path: str, seconds: float) -> None:
    """Write that it began, take its time unless it has begun before, write that it ended."""
    log = Path(path)
    again = log.exists()
    with log.open("a") as file:
        file.write("began ")
    if not again:
        threading.Event().wait(seconds)  # nobody sets it: the worker is killed meanwhile
    with log.open("a") as file:
        file.write("ended ")
