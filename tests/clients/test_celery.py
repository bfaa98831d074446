"""A Celery application with a real worker process: results, retries, ETA, chords, late acks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from celery import chain, chord, group

from rigs.nodes import BrokerUnderTest
from rigs.programs import Background
from rigs.waiting import wait_until

TIMEOUT_S = 30
ETA_S = 6
SOURCE = Path(__file__).with_name("celery_tasks.py")

# Celery's client side leaves sockets of its pools to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def _load(environment: dict[str, str]) -> ModuleType:
    """Import the application afresh, as another process would see it."""
    os.environ.update(environment)
    name = f"celery_tasks_{uuid.uuid4().hex}"
    spec = importlib.util.spec_from_file_location(name, SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _application(broker: BrokerUnderTest, folder: Path, results: str) -> Iterator[SimpleNamespace]:
    shutil.copy(SOURCE, folder / "tasks.py")
    queue = f"celery-{uuid.uuid4().hex[:10]}"
    environment = {
        "BROKER_URL": broker.url.replace("amqp://", "pyamqp://"),
        "RESULTS": results,
        "QUEUE": queue,
    }
    before = {key: os.environ.get(key) for key in environment}
    module = _load(environment)
    tasks = SimpleNamespace(
        **{name: module.app.signature(f"tasks.{name}") for name in _task_names(module)}
    )
    try:
        yield SimpleNamespace(app=module.app, tasks=tasks, queue=queue, folder=folder)
    finally:
        with module.app.connection_for_write() as connection:
            connection.default_channel.queue_delete(queue)
            connection.default_channel.exchange_delete(queue)
        module.app.close()
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def _task_names(module: ModuleType) -> list[str]:
    return [name.rpartition(".")[2] for name in module.app.tasks if not name.startswith("celery.")]


@contextmanager
def _worker(session: SimpleNamespace, name: str, processes: int = 2) -> Iterator[Background]:
    # The only folder that is added to its path is its own, where nothing but tasks.py lies.
    command = [
        sys.executable, "-c", "import sys; sys.path.insert(0, '.'); from celery.__main__ import main; main()",
        "-A", "tasks", "worker", "-c", str(processes), "-n", f"{name}@{session.queue}",
        "-l", "INFO", "--without-gossip", "--without-mingle",
    ]  # fmt: skip
    with Background(command, session.folder, log=f"{name}.log") as worker:
        worker.wait_for("ready.", timeout_s=60)
        yield worker


@pytest.fixture(scope="module")
def celery(
    broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimpleNamespace]:
    """An application with results over rpc:// and one running worker of two processes."""
    folder = tmp_path_factory.mktemp("celery")
    with _application(broker, folder, "rpc://") as session, _worker(session, "main") as worker:
        session.worker = worker
        yield session


def _send(signature: Any, *arguments: Any, **options: Any) -> Any:
    return signature.clone(arguments).apply_async(**options)


def test_a_result(celery: SimpleNamespace) -> None:
    assert _send(celery.tasks.add, 2, 3).get(timeout=TIMEOUT_S) == 5


def test_a_hundred_results(celery: SimpleNamespace) -> None:
    pending = [_send(celery.tasks.add, n, n) for n in range(100)]

    assert [result.get(timeout=TIMEOUT_S) for result in pending] == [2 * n for n in range(100)]


def test_an_error_comes_back(celery: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="as asked"):
        _send(celery.tasks.fail).get(timeout=TIMEOUT_S)


def test_retries(celery: SimpleNamespace) -> None:
    assert _send(celery.tasks.succeed_at, 4).get(timeout=TIMEOUT_S) == 3


def test_groups_and_chains(celery: SimpleNamespace) -> None:
    add = celery.tasks.add
    several = group(add.clone((n, 1)) for n in range(10)).apply_async()
    after_another = chain(add.clone((1, 1)), add.clone((3,)), add.clone((10,))).apply_async()

    assert several.get(timeout=TIMEOUT_S) == list(range(1, 11))
    assert after_another.get(timeout=TIMEOUT_S) == 15


def test_a_megabyte_there_and_back(celery: SimpleNamespace) -> None:
    value = "x" * 1_000_000

    assert _send(celery.tasks.echo, value).get(timeout=TIMEOUT_S) == value


def test_more_tasks_with_an_eta_than_the_prefetch(celery: SimpleNamespace) -> None:
    """Prefetch is 2; ten tasks wait in the worker, and one without ETA overtakes them.

    Celery raises the prefetch for each, but its loop may take a second over some of them.
    """
    started = time.monotonic()
    waiting = [_send(celery.tasks.add, n, 0, countdown=ETA_S) for n in range(10)]
    assert _send(celery.tasks.add, 1, 1).get(timeout=TIMEOUT_S) == 2
    overtook = time.monotonic() - started

    assert [result.get(timeout=TIMEOUT_S) for result in waiting] == list(range(10))
    assert overtook < ETA_S <= time.monotonic() - started


def test_broadcast_commands(celery: SimpleNamespace) -> None:
    control = celery.app.control

    pongs = control.broadcast("ping", reply=True, timeout=10, limit=1)
    registered = control.inspect(timeout=10, limit=1).registered()

    assert [list(pong.values()) for pong in pongs] == [[{"ok": "pong"}]]
    assert "tasks.add" in str(registered)


def test_a_worker_that_is_killed_gives_its_late_tasks_back(
    broker: BrokerUnderTest, tmp_path: Path
) -> None:
    log = tmp_path / "words"
    with _application(broker, tmp_path, "rpc://") as session:
        with _worker(session, "first", processes=1) as first:
            _send(session.tasks.first_time_slow, str(log), 60)
            _wait_for(log, "began ")
            first.signal_group(signal.SIGKILL)
        with _worker(session, "second", processes=1):
            _wait_for(log, "began began ended ")


def _wait_for(log: Path, text: str) -> None:
    def written() -> str:
        return log.read_text() if log.exists() else ""

    wait_until(lambda: written() == text, written, TIMEOUT_S)


def test_a_chord_over_a_database(broker: BrokerUnderTest, tmp_path: Path) -> None:
    results = f"db+sqlite:///{tmp_path}/results.db"
    with _application(broker, tmp_path, results) as session, _worker(session, "chord"):
        add, total = session.tasks.add, session.tasks.total
        plain = chord([add.clone((n, n)) for n in range(6)])(total)
        of_chains = chord([chain(add.clone((n, 1)), add.clone((1,))) for n in range(3)])(total)

        assert plain.get(timeout=TIMEOUT_S) == 30
        assert of_chains.get(timeout=TIMEOUT_S) == 9
