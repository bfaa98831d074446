"""Processes of ``leveret serve --cluster`` that are one broker, with a real etcd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pika

from rigs.cluster.etcd import Etcd
from rigs.nodes import (
    STOP_TIMEOUT_S,
    BrokerUnderTest,
    kill_leveret,
    start_leveret,
    stop_leveret,
)

SECRET = "a secret of tests, long enough"


def arguments(etcd: Etcd, cluster: str, node: str) -> list[str]:
    return [
        "--cluster", cluster, "--etcd", etcd.url, "--node", node,
        "--cluster-listen", "127.0.0.1:0",
    ]  # fmt: skip


def start_node(
    folder: Path,
    etcd: Etcd,
    cluster: str,
    node: str,
    *more: str,
    program: Sequence[str] = (),
    **environment: str,
) -> BrokerUnderTest:
    """Start a node in a folder of its own, with more arguments."""
    folder.mkdir(exist_ok=True)
    words = [*arguments(etcd, cluster, node), *more]
    environment["LEVERET_CLUSTER_SECRET"] = SECRET
    return start_leveret(folder, *words, program=program, **environment)


@contextmanager
def serving(
    folder: Path, etcd: Etcd, cluster: str, node: str, *more: str
) -> Iterator[BrokerUnderTest]:
    """A node, which is stopped at the end, and killed when the test fails."""
    started = start_node(folder, etcd, cluster, node, *more)
    try:
        yield started
    except BaseException:
        kill_leveret(started)
        raise
    stop_leveret(started)


@contextmanager
def nodes(
    folder: Path,
    etcd: Etcd,
    cluster: str,
    names: Sequence[str],
    *more: str,
    program: Sequence[str] = (),
    stop_timeout_s: float = STOP_TIMEOUT_S,
    **environment: str,
) -> Iterator[list[BrokerUnderTest]]:
    """Nodes of one cluster, each with its ready line."""
    with ExitStack() as ends:
        started = []
        for name in names:
            node = start_node(
                folder / name, etcd, cluster, name, *more, program=program, **environment
            )
            ends.callback(kill_leveret, node)
            started.append(node)
        yield started
        ends.pop_all()
        for node in started:
            stop_leveret(node, stop_timeout_s)


@contextmanager
def channel(
    node: BrokerUnderTest, user: str = "guest"
) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """A channel with confirms, on a connection of its own."""
    credentials = pika.PlainCredentials(user, user)
    parameters = pika.ConnectionParameters("127.0.0.1", node.port, credentials=credentials)
    connection = pika.BlockingConnection(parameters)
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        if connection.is_open:
            connection.close()
