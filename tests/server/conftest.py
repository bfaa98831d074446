"""A control socket without a broker: its verbs record the calls, for tests of the socket and the command line."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.server.control import ControlServer

STATUS = {
    "version": "0.1.0",
    "kernel": "py",
    "event_loop": "uvloop",
    "path": "sources",
    "latency": "balanced",
    "pid": 4711,
    "node_id": "3ad58dbc-0e9c-4d6f-9a57-0b6c8f6c9f7a",
    "data_dir": "/d",
    "uptime_s": 93784.5,
    "listeners": ["127.0.0.1:5672", "[::1]:5672"],
    "vhosts": 1,
    "connections": 2,
    "channels": 3,
    "consumers": 4,
    "actors": 50,
    "alarms": ["disk"],
    "memory": {
        "used_bytes": 123_400_000,
        "limit_bytes": 9_500_000_000,
        "total_bytes": 24_000_000_000,
        "parts": {
            "connection_readers": 1_500_000,
            "connection_writers": 200_000,
            "connection_channels": 300_000,
            "metadata": {"/": 400_000, "v": 100_000},
            "queue_procs": 12_000_000,
        },
    },
    "disk": {"free_bytes": None, "limit_bytes": 50_000_000_000},
    "file_descriptors": {
        "total_limit": 20_000,
        "total_used": 123,
        "sockets_limit": 19_840,
        "sockets_used": 2,
    },
    "queues": {
        "count": 1,
        "quorum": 0,
        "messages_ready": 5,
        "messages_unacknowledged": 6,
        "largest": [
            {
                "vhost": "/",
                "name": "a\nb",
                "messages_ready": 5,
                "messages_unacknowledged": 6,
                "consumers": 4,
                "messages_ram": 9,
                "messages_paged_out": 2,
                "messages_persistent": 7,
                "q4": 1,
                "q3": 2,
                "delta_messages": 0,
                "q2": 0,
                "q1": 2,
            },
            {
                "vhost": "/",
                "name": "m",
                "messages_ready": 1,
                "messages_unacknowledged": 0,
                "consumers": 0,
                "messages_ram": 1,
                "messages_paged_out": 0,
                "messages_persistent": 0,
            },
        ],
    },
    "vhosts_down": [
        {
            "vhost": "or\nders",
            "reason": "No space left on device",
            "since_s": 1.0,
            "down_s": 61.5,
            "tries": 61,
            "is_retried": True,
            "next_try_in_s": 0.5,
        },
    ],
    "stores": [
        {
            "vhost": "/",
            "shortage": "",
            "damage": ["journal: records 5 to 8 are missing at its end", "2 messages lost"],
            "messages": 7,
            "segments": 2,
            "segment_bytes": 20_971_520,
            "live_bytes": 9_000_000,
            "garbage_bytes": 11_971_520,
            "journal_bytes": 12_345_678,
            "unindexed_rows": 3,
            "frozen_memtables": 0,
            "checkpoint_age_s": 4.2,
            "ranges_leaving": 0,
            "syncs": 8,
            "sync_mean_s": 0.00212,
            "sync_longest_s": 0.0305,
            "contents_read": 5,
            "contents_read_bytes": 5_000,
            "contents_lost": 1,
            "read_cache_bytes": 0,
            "transients": {
                "waiting_bytes": 0,
                "disk_bytes": 30_000_000_000,
                "live": 2,
                "live_bytes": 20,
                "segments": 1,
            },
            "merges": 2,
            "merged_bytes": 1_000_000,
            "removed": 4,
            "removed_bytes": 40_000_000,
            "archived_queues": 2,
            "archive_segments": 3,
            "archive_bytes": 150_000_000,
            "archive_given_up_bytes": 0,
        }
    ],
}

TREE = [
    {"depth": 0, "name": "leveret", "type": "supervisor", "state": "running"}
    | {"restarts": 0, "restarted_ago_s": None},
    {"depth": 1, "name": "listener", "type": "worker", "state": "running"}
    | {"restarts": 2, "restarted_ago_s": 71.4},
]

# Rows as rabbitmqctl 3.10.8 prints them, recorded from a run with these two queues.
QUEUES = [
    {
        "name": "lev.a",
        "durable": True,
        "arguments": [
            ["x-message-ttl", "signedint", 60000],
            ["x-max-priority", "signedint", 5],
            ["x-l", "array", [["signedint", 1], ["longstr", "a"], ["bool", True]]],
            ["x-t", "table", [["k", "longstr", 'v"']]],
            ["x-v", "void", None],
        ],
        "messages": 2,
        "policy": None,
    },
    {"name": "lev.b", "durable": False, "arguments": [], "messages": 0, "policy": None},
]


ABOUT = {
    "leveret_version": "0.1.0",
    "product_name": "RabbitMQ",
    "product_version": "3.10.8",
    "python_version": "3.11.2",
    "cluster_name": "leveret@x",
    "os": "Linux 6.1",
    "pid": 4711,
    "alarms": [],
    "alarms_elsewhere": {},
    "listeners": [
        {"interface": "127.0.0.1", "port": 5672, "protocol": "amqp"},
        {"interface": "[::1]", "port": 5672, "protocol": "amqp"},
    ],
    "log_files": [],
    "memory_watermark": {"relative": 0.4},
    "vhosts_down": {},
    "vhosts": ["/", "v"],
}


class FakeAdmin:
    """Records the calls of a node's verbs; refuses what RabbitMQ refuses."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.notices: list[str] = []
        self.users: dict[str, list[str]] = {"guest": ["administrator"]}
        self.queues = [dict(row) for row in QUEUES]
        self.facts = dict(ABOUT)
        self.down: list[dict[str, Any]] = []
        self.limits: list[dict[str, Any]] = []
        self.cluster: dict[str, Any] | None = None
        self.running = ["a", "b"]
        self.certificate_rows: list[dict[str, Any]] = []

    def verbs(self) -> dict[str, Any]:
        """The verbs of a node, with their arguments: these methods, the others record the call only."""
        single = SimpleNamespace(node=SimpleNamespace(links=None), cluster=None)
        real = NodeAdmin(single).control_verbs()  # type: ignore[arg-type]
        return {
            name: getattr(self, name, None) or self._recording(name, verb)
            for name, verb in real.items()
        }

    def _recording(self, name: str, verb: Callable[..., Any]) -> Any:
        async def record(**arguments: Any) -> list[Any] | None:
            self.asked.append((name, arguments))
            if name.startswith("list_"):
                return []
            return self.notices if name in {"set_policy", "set_operator_policy"} else None

        record.__signature__ = inspect.signature(verb)  # type: ignore[attr-defined]
        return record

    async def status(self) -> dict[str, Any]:
        return STATUS

    async def about(self) -> dict[str, Any]:
        return self.facts

    async def cluster_status(self) -> dict[str, Any]:
        return {"cluster": self.cluster, "cluster_name": "leveret@x", "nodes": {"": self.facts}}

    async def running_nodes(self) -> list[str]:
        return self.running

    async def forget_cluster_node(self, node: str, dry_run: bool) -> dict[str, Any]:
        self.asked.append(("forget_cluster_node", {"node": node, "dry_run": dry_run}))
        return {"queues": [{"vhost": "/", "name": "a\nb"}]}

    async def memory_breakdown(self) -> dict[str, int]:
        return {"total": 200_000_000, "other": 150_000_000, "queue_procs": 50_000_000}

    async def certificates(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.certificate_rows]

    async def environment(self) -> dict[str, Any]:
        return {"channel_max": 2047, "default_pass": "********", "loopback_users": ["guest"]}

    async def os_env(self) -> dict[str, str]:
        return {"LEVERET_LOOP": "asyncio"}

    async def check_virtual_hosts(self) -> list[dict[str, Any]]:
        return self.down

    async def list_vhost_limits(self, vhost: str | None) -> list[dict[str, Any]]:
        return self.limits

    async def list_user_limits(self, user: str | None) -> list[dict[str, Any]]:
        return self.limits

    async def delete_queue(self, vhost: str, name: str, if_empty: bool, if_unused: bool) -> int:
        asked = {"vhost": vhost, "name": name, "if_empty": if_empty, "if_unused": if_unused}
        self.asked.append(("delete_queue", asked))
        return 3

    async def tree(self) -> list[dict[str, Any]]:
        return TREE

    async def add_user(self, name: str, password: str) -> None:
        if name in self.users:
            raise RefusedError(f'User "{name}" already exists', 70)
        self.users[name] = []
        self.asked.append(("add_user", {"name": name, "password": password}))

    async def list_users(self) -> list[dict[str, Any]]:
        return [{"user": name, "tags": tags} for name, tags in self.users.items()]

    async def list_queues(self, vhost: str, local: bool = False) -> list[dict[str, Any]]:
        self.asked.append(("list_queues", {"vhost": vhost, "local": local}))
        return self.queues

    async def list_connections(self) -> list[dict[str, Any]]:
        return [{"user": "guest", "protocol": [0, 9, 1], "ssl": False}]

    async def close_all_connections(self, vhost: str | None, reason: str) -> int:
        self.asked.append(("close_all_connections", {"vhost": vhost, "reason": reason}))
        return 7

    async def export_definitions(self) -> dict[str, Any]:
        return {"users": [], "größe": 1}

    async def import_definitions(
        self, document: dict[str, Any], unsupported_queues: str
    ) -> list[str]:
        asked = {"document": document, "unsupported_queues": unsupported_queues}
        self.asked.append(("import_definitions", asked))
        return self.notices

    async def delete_user(self, name: str) -> None:
        raise KeyError(name)


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def serving(tmp_path: Path, admin: FakeAdmin) -> Iterator[Path]:
    """A data directory whose control socket answers from a thread of its own."""
    with served(tmp_path, admin.verbs()):
        yield tmp_path


class served:  # noqa: N801 - used like a function
    """Serve verbs on a data directory while the block runs."""

    def __init__(self, data_dir: Path, verbs: Mapping[str, Any]) -> None:
        self.data_dir = data_dir
        self.verbs = verbs
        self.loop = asyncio.new_event_loop()

    def __enter__(self) -> None:
        self.server = ControlServer(self.data_dir, self.verbs)
        self.loop.run_until_complete(self.server.start())
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


@pytest.fixture
def serve_at() -> Callable[[Path, Any], served]:
    return served
