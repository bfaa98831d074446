"""Migrations from a broker (``--rabbitmq``: from a RabbitMQ) into a Leveret of the test's own.

Tests: server/migrate/command.py, server/migrate/definitions.py, server/migrate/transfer.py
"""

from __future__ import annotations

import base64
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest

from leveret.core.errors import ConfigError
from leveret.server.cli.main import main
from leveret.server.migrate.definitions import definitions_of, queues_of
from rigs.nodes import BrokerUnderTest, leveret_program, serving
from rigs.programs import Background, ended
from rigs.waiting import wait_until

pytestmark = pytest.mark.rabbitmq


class Source:
    """Queues of the broker under test, with names of their own, and their definitions."""

    def __init__(self, broker: BrokerUnderTest, folder: Path) -> None:
        self.broker = broker
        self.definitions = folder / "definitions.json"
        self.names: list[str] = []
        self._prefix = f"migrate-{uuid4().hex[:8]}-"
        self._connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self.channel = self._connection.channel()
        self.channel.confirm_delivery()

    def queue(self, name: str, count: int = 0, **arguments: Any) -> str:
        """Declare a queue and fill it with numbers."""
        full = self._prefix + name
        self.channel.queue_declare(full, durable=True, arguments=arguments or None)
        self.names.append(full)
        for number in range(count):
            self.publish(full, b"%d" % number)
        return full

    def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        made = pika.BasicProperties(delivery_mode=2, **properties)
        self.channel.basic_publish("", queue, body, made)

    def write(self, *more: dict[str, Any]) -> None:
        """Write the definitions, with more queues."""
        own = [
            {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
            for name in self.names
        ]
        self.definitions.write_text(
            json.dumps({"vhosts": [{"name": "/"}], "queues": [*own, *more]})
        )

    def depth(self, name: str) -> int:
        return depth(self.channel, name)

    def close(self) -> None:
        for name in self.names:
            self.channel.queue_delete(name)
        self._connection.close()


def depth(channel: Any, name: str) -> int:
    count: int = channel.queue_declare(name, passive=True).method.message_count
    return count


@pytest.fixture
def source(broker: BrokerUnderTest, tmp_path: Path) -> Iterator[Source]:
    made = Source(broker, tmp_path)
    yield made
    made.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    folder = tmp_path / "target"
    folder.mkdir()
    with serving(folder) as node:
        yield node


@contextmanager
def channel_of(node: BrokerUnderTest) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    yield connection.channel()
    connection.close()


def drained(node: BrokerUnderTest, name: str) -> list[Any]:
    """Return properties and bodies of all messages."""
    with channel_of(node) as channel:
        found = []
        while (message := channel.basic_get(name, auto_ack=True))[0] is not None:
            found.append(message[1:])
        return found


def words(source: Source, target: BrokerUnderTest, *more: str) -> list[str]:
    place = f"{source.broker.host}:{source.broker.port}"
    return [
        leveret_program(), "migrate", "--definitions", str(source.definitions), "--source", f"amqp://{place}",
        "--target", f"amqp://{target.host}:{target.port}", "--data", str(target.data), "--json", *more,
    ]  # fmt: skip


def test_definitions_and_messages_arrive_in_order_with_their_properties(
    source: Source, target: BrokerUnderTest, tmp_path: Path
) -> None:
    many, few, empty = source.queue("many", 700), source.queue("few", 3), source.queue("empty")
    source.publish(
        few,
        b"",
        headers={"n": 1, "list": [1, "a"]},
        priority=4,
        message_id="ü",
        expiration="86400000",
    )
    source.publish(few, b"x" * 300_000, headers={"CC": ["elsewhere"], "k": True})
    source.write()

    done = ended(words(source, target, "--prefetch", "50"), tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["counts"] == {"queues": 3, "messages": 705, "moved": 705}
    by_name = {row["queue"]: row["moved"] for row in report["details"]["queues"]}
    assert by_name == {many: 700, few: 5, empty: 0}
    assert [body for _, body in drained(target, many)] == [b"%d" % number for number in range(700)]
    *_, (rich, nothing), (copied, large) = drained(target, few)
    assert (nothing, large) == (b"", b"x" * 300_000)
    assert (rich.headers, rich.priority, rich.message_id) == ({"n": 1, "list": [1, "a"]}, 4, "ü")
    assert rich.expiration == "86400000"
    assert copied.headers == {"k": True}
    assert "CC" in report["warnings"][0]
    assert [source.depth(name) for name in (many, few, empty)] == [0, 0, 0]


def test_a_migration_that_was_killed_is_run_again_with_few_duplicates_and_no_loss(
    source: Source, target: BrokerUnderTest, tmp_path: Path
) -> None:
    name = source.queue("q", 3_000)
    source.write()
    command = words(source, target, "--prefetch", "20")
    with channel_of(target) as channel:
        # The queue is there before, so that looking at it costs one method and the kill comes in time.
        channel.queue_declare(name, durable=True)
        with Background(command, tmp_path) as running:
            wait_until(lambda: depth(channel, name) > 100, pause_s=0.001)
            running.signal_group(signal.SIGKILL)
            running.process.wait()
    assert source.depth(name) > 0

    again = ended(command, tmp_path)

    assert again.returncode == 0, again.stderr
    found = [int(body) for _, body in drained(target, name)]
    assert set(found) == set(range(3_000))
    assert len(found) - 3_000 <= 20
    assert list(dict.fromkeys(found)) == [*range(3_000)]
    assert source.depth(name) == 0


def _is_there(node: BrokerUnderTest, name: str) -> bool:
    return name in node.control("list_queues", "name", "-s").split()


def test_following_goes_on_until_a_signal_and_leaves_the_rest_at_the_source(
    source: Source, target: BrokerUnderTest, tmp_path: Path
) -> None:
    name = source.queue("q", 10)
    source.write()
    with Background(words(source, target, "--follow"), tmp_path) as running:
        with channel_of(target) as channel:
            wait_until(lambda: _is_there(target, name) and depth(channel, name) == 10)
            for number in range(10, 30):
                source.publish(name, b"%d" % number)
            wait_until(lambda: depth(channel, name) == 30)
        running.process.terminate()
        assert running.process.wait(15) == 0

    assert json.loads(running.output)["counts"]["moved"] == 30
    source.publish(name, b"later")
    assert source.depth(name) == 1
    assert [int(body) for _, body in drained(target, name)] == [*range(30)]


def test_a_queue_that_is_deleted_meanwhile_is_left_out_and_the_others_go_on(
    source: Source, target: BrokerUnderTest, tmp_path: Path
) -> None:
    gone, other = source.queue("gone", 3), source.queue("other")
    source.write()
    with Background(words(source, target, "--follow"), tmp_path) as running:
        with channel_of(target) as channel:
            wait_until(lambda: _is_there(target, gone) and depth(channel, gone) == 3)
            source.channel.queue_delete(gone)
            source.publish(other, b"x")
            wait_until(lambda: depth(channel, other) == 1)
        running.process.terminate()
        assert running.process.wait(15) == 1

    report = json.loads(running.output)
    assert report["counts"]["moved"] == 4
    assert (
        f'queue "{gone}" of vhost "/" was left out: it was deleted meanwhile' in report["warnings"]
    )


def test_a_dry_run_counts_and_what_cannot_be_moved_is_named(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = source.queue("q", 7)
    source.write(
        {"name": "gone", "vhost": "/"},
        {"name": "events", "vhost": "/", "arguments": {"x-queue-type": "stream"}},
    )
    place = f"amqp://{source.broker.host}:{source.broker.port}"
    given = [
        "migrate",
        "--definitions",
        str(source.definitions),
        "--source",
        place,
        "--dry-run",
        "--json",
    ]

    assert main(given) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {"queues": 1, "messages": 7}
    assert report["details"]["queues"] == [{"vhost": "/", "queue": name, "messages": 7}]
    assert 'queue "events" of vhost "/" was left out: it is a stream' in report["warnings"]
    assert any('"gone"' in text and "404" in text for text in report["warnings"])
    assert main([*given, "--queue", "migrate-*"]) == 0


def test_a_target_that_refuses_leaves_the_messages_at_the_source(
    source: Source, target: BrokerUnderTest, tmp_path: Path
) -> None:
    name = source.queue("q", 8)
    source.write()
    with channel_of(target) as channel:
        full = {"x-max-length": 3, "x-overflow": "reject-publish"}
        channel.queue_declare(name, durable=True, arguments=full)

    done = ended(words(source, target, "--no-import", "--prefetch", "1"), tmp_path)

    assert done.returncode == 70
    assert f'vhost "/": the target refused a message for queue "{name}"' in done.stderr
    assert [int(body) for _, body in drained(target, name)] == [0, 1, 2]
    wait_until(lambda: source.depth(name) == 5)


REFUSED = [
    (["--source", "amqp://u:hunter2@h"], 78, "use --source-file or --source-env"),
    (["--source", "amqp://h/vhost"], 78, "--source names a vhost"),
    (["--source", "amqp://h", "--follow", "--dry-run"], 78, "--follow has no effect"),
    (["--source", "amqp://h", "--definitions", "nowhere"], 65, "nowhere does not exist"),
    (["--source", "amqp://h", "--definitions", "http://u:hunter2@h"], 78, "has a password"),
    (["--source", "amqp://127.0.0.1:1", "--dry-run"], 70, "cannot connect"),
    (["--source", "amqp://h", "--data", "nowhere"], 69, "no broker"),
    ([], 64, "--source"),
    (["--source", "amqp://h", "--prefetch", "0"], 64, "from 1 to 65535"),
]


def test_what_is_wrong_is_one_line_without_a_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "definitions.json"
    file.write_text('{"queues": [{"name": "q", "vhost": "/"}]}')
    for more, code, text in REFUSED:
        try:
            found = main(["migrate", "--definitions", str(file), *more])
        except SystemExit as ending:
            found = ending.code
        said = capsys.readouterr()
        assert (found, said.out) == (code, ""), (more, said)
        assert text in said.err
        assert "hunter2" not in said.err


def test_a_queue_that_the_target_has_not_ends_it_before_anything_is_moved(
    source: Source, target: BrokerUnderTest, tmp_path: Path
) -> None:
    name = source.queue("q", 2)
    source.write()

    done = ended(words(source, target, "--no-import"), tmp_path)

    assert done.returncode == 78
    assert f'the target has no queue "{name}"' in done.stderr
    assert source.depth(name) == 2


@contextmanager
def http(answer: Callable[[str, str], tuple[int, Any]]) -> Iterator[str]:
    """Serve HTTP; ``answer`` gets path and login, and returns status and JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            login = self.headers["Authorization"].removeprefix("Basic ")
            status, document = answer(self.path, base64.b64decode(login).decode())
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_definitions_are_taken_from_the_management_plug_in() -> None:
    seen: list[tuple[str, str]] = []

    def answer(path: str, login: str) -> tuple[int, Any]:
        seen.append((path, login))
        return (200, {"queues": []}) if login == "a/b:s3cret" else (401, {})

    with http(answer) as place:
        found = definitions_of(
            f"http://a%2Fb@{place}/", {"LEVERET_MIGRATE_HTTP_PASSWORD": "s3cret"}
        )
        with pytest.raises(ConfigError, match=r"answers 401 .*: check user guest"):
            definitions_of(f"http://{place}", {})
    with http(lambda *_: (200, [])) as place, pytest.raises(ConfigError, match="no definitions"):
        definitions_of(f"http://{place}", {})
    no_json = {"queues": [{"arguments": {"x": float("inf")}}]}
    with http(lambda *_: (200, no_json)) as place, pytest.raises(ConfigError, match="not JSON"):
        definitions_of(f"http://{place}", {})

    assert found == {"queues": []}
    assert seen == [("/api/definitions", "a/b:s3cret"), ("/api/definitions", "guest:guest")]


def test_queues_are_chosen_by_globs_of_names_and_vhosts() -> None:
    document = {
        "queues": [
            {"name": "orders.eu", "vhost": "a"},
            {"name": "orders.us", "vhost": "b"},
            {"name": "log", "vhost": "a", "type": "stream"},
        ]
    }

    def chosen(vhosts: list[str], queues: list[str]) -> list[str]:
        return [queue.name for queue in queues_of(document, vhosts, queues)]

    assert chosen([], []) == ["orders.eu", "orders.us", "log"]
    assert chosen(["a"], ["orders.*"]) == ["orders.eu"]
    assert chosen([], ["*.us", "log"]) == ["orders.us", "log"]
    assert queues_of(document, [], ["log"])[0].why_not == "it is a stream"
    with pytest.raises(ConfigError, match="a queue without a name"):
        queues_of({"queues": [{}]}, [], [])
