"""The control socket: requests, refusals, and what happens around it.

Tests: management/verb_table.py, server/control_client.py
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.core.addresses import Address
from leveret.core.limits import CONTROL_CLIENTS_MAX
from leveret.core.slices import SLICE_ITEMS
from leveret.management import json_text
from leveret.management.audit_log import audit
from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.server import control, control_client
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from leveret.server.control import ROWS_AT_ONCE
from leveret.server.control_client import (
    SOCKET,
    ControlFailedError,
    NoBrokerError,
    ask,
    running_brokers,
)
from rigs.waiting import wait_until

SINGLE = SimpleNamespace(node=SimpleNamespace(links=None), cluster=None)  # a broker without others


def exchange(data_dir: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(data_dir / SOCKET))
        client.sendall(line)
        answer: dict[str, Any] = json.loads(client.makefile("rb").readline())
        return answer


def test_an_answer_comes_back(serving: Path) -> None:
    assert ask(serving, "list_users", {}) == [{"user": "guest", "tags": ["administrator"]}]


def test_a_long_answer_comes_back_whole(serve_at: Callable[..., Any], tmp_path: Path) -> None:
    rows = [{"name": f"q{number}", "arguments": []} for number in range(2 * SLICE_ITEMS + 1)]

    async def list_queues(vhost: str) -> list[dict[str, Any]]:
        return rows[: int(vhost)]

    async def export_definitions() -> dict[str, Any]:
        return {"users": [], "queues": list(rows), "more": {"deep": {"deeper": rows[:1]}}}

    async def status() -> dict[str, Any]:
        return {}

    expected = list(rows)
    with serve_at(
        tmp_path, {verb.__name__: verb for verb in (list_queues, export_definitions, status)}
    ):
        for count in (0, 1, SLICE_ITEMS, SLICE_ITEMS + 1, 2 * SLICE_ITEMS, 2 * SLICE_ITEMS + 1):
            assert ask(tmp_path, "list_queues", {"vhost": str(count)}) == expected[:count]
        assert ask(tmp_path, "export_definitions", {}) == {
            "users": [],
            "queues": expected,
            "more": {"deep": {"deeper": expected[:1]}},
        }
        assert ask(tmp_path, "status", {}) == {}


def test_names_that_are_no_text_go_both_ways(serving: Path, admin: Any) -> None:
    name = os.fsdecode(b"h\xff")
    ask(serving, "add_user", {"name": name, "password": "x"})

    assert admin.users[name] == []
    assert ask(serving, "list_users", {})[1] == {"user": name, "tags": []}


def test_a_refusal_comes_back_in_its_own_words(serving: Path) -> None:
    with pytest.raises(RefusedError, match=r'^User "guest" already exists$'):
        ask(serving, "add_user", {"name": "guest", "password": "x"})


def test_a_failure_of_the_broker_is_not_a_refusal(serving: Path) -> None:
    with pytest.raises(ControlFailedError, match="KeyError: 'nope'"):
        ask(serving, "delete_user", {"name": "nope"})


def test_several_requests_may_come_on_one_connection(serving: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(serving / SOCKET))
        client.sendall(b'{"verb": "list_users"}\n{"verb": "nope"}\n')
        lines = client.makefile("rb")

        assert "ok" in json.loads(lines.readline())
        assert json.loads(lines.readline()) == {
            "refused": "unknown verb 'nope'",
            "exit_code": 65,
        }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"verb": "__init__"}\n', "unknown verb '__init__'"),
        (b'{"verb": 5}\n', "unknown verb 5"),
        (b"{}\n", "unknown verb None"),
        (b'{"verb": "add_user", "arguments": {"name": "a"}}\n', "add_user takes the arguments name, password"),
        (b'{"verb": "tree", "arguments": {"x": "a"}}\n', "tree takes the arguments none"),
        (b'{"verb": "tree", "arguments": []}\n', "tree takes the arguments none"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused(serving: Path, line: bytes, said: str) -> None:
    assert exchange(serving, line) == {"refused": said, "exit_code": 65}


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b"\xff\n",
        b"\n",
        b'{"verb": "tree", "arguments": {"x": NaN}}\n',
        b'{"verb": "tree", "arguments": {"x": -1e400}}\n',
        b'{"part": ["x"], "items": [Infinity]}\n',
        b'{"verb": "tree", "arguments": {"x": "\\ud800"}}\n',
    ],
)
def test_what_is_no_request_is_refused(serving: Path, line: bytes) -> None:
    assert exchange(serving, line)["refused"].startswith("not a request: ")


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE])
def test_rows_are_sent_as_they_are_made(
    count: int, serve_at: Callable[..., Any], tmp_path: Path
) -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        for number in range(count):
            yield {"name": f"q{number}"}

    async def list_queues(vhost: str) -> AsyncIterator[dict[str, Any]]:
        if vhost:
            raise RefusedError("no such vhost")
        return rows()

    with serve_at(tmp_path, {"list_queues": list_queues}):
        for _ in range(2):
            answer = ask(tmp_path, "list_queues", {"vhost": ""})
            assert answer == [{"name": f"q{number}"} for number in range(count)]
        with pytest.raises(RefusedError, match="no such vhost"):
            ask(tmp_path, "list_queues", {"vhost": "v"})


def test_rows_are_not_made_before_the_client_reads(
    serve_at: Callable[..., Any], tmp_path: Path
) -> None:
    made: list[int] = []

    async def rows() -> AsyncIterator[str]:
        for number in range(100_000):
            made.append(number)
            yield "x" * 1_000

    async def list_queues() -> AsyncIterator[str]:
        return rows()

    with serve_at(tmp_path, {"list_queues": list_queues}), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / SOCKET))
        client.sendall(b'{"verb": "list_queues"}\n')
        assert client.recv(1) == b"{"
        wait_until(lambda: len(made) >= ROWS_AT_ONCE)
        assert len(made) < 10_000


def test_the_verbs_that_stream_are_verbs() -> None:
    admin = NodeAdmin(SINGLE)  # type: ignore[arg-type]

    assert admin.streams().keys() <= admin.verbs().keys()


def test_long_arguments_go_in_parts_and_come_whole(
    serve_at: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "PART_BYTES", 1_000)
    monkeypatch.setattr(control, "CONTROL_LINE_BYTES_MAX", 4_000)
    given: list[Any] = []

    async def import_definitions(document: dict[str, Any]) -> int:
        given.append(json.loads(json.dumps(document)))
        return len(document["queues"])

    queues = [{"name": f"q{number}\udcff", "arguments": {}} for number in range(3 * SLICE_ITEMS)]
    document = {"users": [{"name": "u"}], "queues": queues, "bindings": []}
    with serve_at(tmp_path, {"import_definitions": import_definitions}):
        for _ in range(2):
            assert ask(tmp_path, "import_definitions", {"document": document}) == len(queues)

    assert given == [document, document]
    assert len(queues) == 3 * SLICE_ITEMS


@pytest.mark.parametrize("path", [[], ["name"], ["nope"], ["name", "deep"], ["document", "queues"]])
def test_a_part_of_what_is_no_list_is_refused(serving: Path, path: list[str]) -> None:
    part = json.dumps({"part": path, "items": [1]}).encode() + b"\n"
    request = b'{"verb": "add_user", "arguments": {"name": "a", "password": "b"}}\n'

    assert exchange(serving, part + request)["refused"].startswith("not a request: a part of")


@pytest.mark.parametrize("line", [b'[{"a":' * 600, b"x" * 5_000])
def test_a_line_that_is_too_long_ends_its_connection_only(
    serving: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(serving / SOCKET))
        with contextlib.suppress(ConnectionError):
            while True:  # the server stops to read
                client.sendall(line * 1_000)
    assert "control client dropped" in caplog.text
    assert ask(serving, "list_users", {}) != []


@pytest.mark.parametrize("items", ["[]", "{}", '"x"', '{"a":[]}', "1.5", '"' + "x" * 1_000 + '"'])
def test_a_request_of_too_many_parts_is_refused_by_the_memory_that_they_take(
    serving: Path, monkeypatch: pytest.MonkeyPatch, items: str
) -> None:
    monkeypatch.setattr(control, "CONTROL_MEMORY_MIN", 2 << 20)
    part = f'{{"part":["a"],"items":[{",".join([items] * 100)}]}}\n'.encode()
    held = 100 * (sys.getsizeof(json.loads(items)) + 8)

    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(serving / SOCKET))
        with contextlib.suppress(ConnectionError):
            client.sendall(part * ((1 << 20) // held + 1))
        said = json.loads(client.makefile("rb").readline())
    assert said["refused"].startswith("the request takes more than 1 MiB of memory")
    assert ask(serving, "list_users", {}) != []


def test_the_client_reads_why_its_request_is_refused(
    serving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "CONTROL_MEMORY_MIN", 1 << 20)
    document = {"queues": [{"name": f"q{number}"} for number in range(50_000)]}

    with pytest.raises(RefusedError, match="send it in smaller ones, or raise the limit"):
        ask(serving, "import_definitions", {"document": document})


def test_all_requests_under_way_have_a_bound_and_give_their_memory_back(
    serving: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control, "CONTROL_MEMORY_MIN", 1 << 20)
    part = b'{"part":["a"],"items":[%b]}\n' % b",".join([b"[]"] * 2_000)  # some 400 KB
    with contextlib.ExitStack() as open_clients:
        for _ in range(3):
            client = open_clients.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(5)
            client.connect(str(serving / SOCKET))
            client.sendall(part)
        wait_until(lambda: "the requests under way take more than 1 MiB" in caplog.text)

    wait_until(lambda: "unknown verb" in exchange(serving, part + b"{}\n")["refused"])


def test_a_line_of_too_many_values_is_refused_before_it_is_decoded(serving: Path) -> None:
    line = b'{"verb": "add_user", "arguments": [%b]}\n' % b",".join([b"[]"] * 100_000)

    assert exchange(serving, line)["refused"] == "not a request: a line of 19 MiB of values"


def test_others_run_between_two_lines_for_as_long_as_one_took(
    serving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 0.0
    decoded_at_s: list[float] = []

    def decode(line: bytes) -> Any:
        nonlocal clock_s
        decoded_at_s.append(time.monotonic())
        clock_s += 0.05
        return json.loads(line)

    monkeypatch.setattr(control, "time", SimpleNamespace(monotonic=lambda: clock_s))
    monkeypatch.setattr(
        control, "json_text", SimpleNamespace(**(vars(json_text) | {"decode": decode}))
    )
    part = b'{"part":["a"],"items":[1]}\n'
    with contextlib.ExitStack() as open_clients:
        for _ in range(2):
            client = open_clients.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(serving / SOCKET))
            client.sendall(part * 2)
        wait_until(lambda: len(decoded_at_s) == 4)

    assert all(after - before >= 0.05 for before, after in itertools.pairwise(decoded_at_s))


def test_a_client_that_does_not_read_is_dropped(
    serve_at: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(control, "CONTROL_STALLED_S", 0.05)

    async def status() -> list[str]:
        return ["x" * 1_000] * (100 * SLICE_ITEMS)

    with serve_at(tmp_path, {"status": status}), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / SOCKET))
        client.sendall(b'{"verb": "status"}\n')
        wait_until(lambda: "read nothing" in caplog.text)
        with contextlib.suppress(ConnectionError):
            while client.recv(1 << 20):
                pass


def test_a_client_that_sends_nothing_gives_up_its_place(
    serving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as open_clients:
        monkeypatch.setattr(control, "CONTROL_STALLED_S", 0.05)
        clients = [open_clients.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(16)]
        for client in clients:
            client.settimeout(5)
            client.connect(str(serving / SOCKET))
        for client in clients:
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
        monkeypatch.setattr(control, "CONTROL_STALLED_S", 60.0)
        assert ask(serving, "list_users", {}) != []


def test_more_clients_than_there_is_room_for_are_told(serving: Path) -> None:
    with contextlib.ExitStack() as open_clients:
        for _ in range(CONTROL_CLIENTS_MAX):
            client = open_clients.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(serving / SOCKET))
            client.sendall(b'{"verb": "list_users"}\n')
            client.recv(1)
        with pytest.raises(
            ControlFailedError, match=f"{CONTROL_CLIENTS_MAX} clients are connected"
        ):
            ask(serving, "list_users", {})


def test_who_asked_stands_in_the_log(
    serve_at: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "leveret")

    async def add_user(name: str, password: str) -> None:
        if name == "guest":
            raise RefusedError("exists")
        audit("user added user=%s by=%s", name)

    with serve_at(tmp_path, {"add_user": add_user}):
        ask(tmp_path, "add_user", {"name": "hare", "password": "secret"})
        with pytest.raises(RefusedError):
            ask(tmp_path, "add_user", {"name": "guest", "password": "secret"})

    by = f'by="uid {os.getuid()}, pid {os.getpid()}"'
    assert [record.getMessage() for record in caplog.records] == [
        f"user added user=hare {by}",
        f"control request refused verb=add_user {by} reason=exists",
    ]


def test_only_the_owner_may_open_the_socket(serving: Path) -> None:
    assert stat.S_IMODE((serving / SOCKET).stat().st_mode) == 0o600


def test_the_path_may_be_longer_than_an_address(
    tmp_path: Path, admin: Any, serve_at: Callable[..., Any]
) -> None:
    long = tmp_path / ("x" * 120) / ("y" * 120)
    long.mkdir(parents=True)

    with serve_at(long, admin.verbs()):
        assert ask(long, "list_users", {})
    assert not (long / SOCKET).exists()


def test_a_dead_brokers_socket_is_taken_over(
    tmp_path: Path, admin: Any, serve_at: Callable[..., Any]
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    with pytest.raises(NoBrokerError):
        ask(tmp_path, "tree", {})

    with serve_at(tmp_path, admin.verbs()):
        assert ask(tmp_path, "list_users", {})


@pytest.mark.parametrize(("folder", "what"), [(".", ""), ("not-there", ", which is no directory")])
def test_no_broker_is_said_with_the_directory_and_how_another_is_chosen(
    tmp_path: Path, folder: str, what: str
) -> None:
    with pytest.raises(NoBrokerError) as caught:
        ask(tmp_path / folder, "tree", {})

    place = (tmp_path / folder).absolute()
    text = f"no broker is running in {place}{what}; --data DIR or LEVERET_DATA chooses another"
    assert str(caught.value).startswith(text)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
async def test_brokers_that_run_elsewhere_are_named(tmp_path: Path) -> None:
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "there")):
        assert running_brokers()[tmp_path / "there"] == os.getpid()
        with pytest.raises(NoBrokerError) as caught:
            ask(tmp_path / "here", "tree", {})

    assert f"{tmp_path / 'there'} (process {os.getpid()})" in str(caught.value)


def test_a_client_that_stays_does_not_keep_the_server(
    tmp_path: Path, admin: Any, serve_at: Callable[..., Any]
) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        with serve_at(tmp_path, admin.verbs()):
            client.connect(str(tmp_path / SOCKET))
            client.sendall(b'{"verb": "list_users"}\n')
            client.recv(1)

        assert not (tmp_path / SOCKET).exists()
        while client.recv(4096):
            pass


def test_every_verb_is_the_method_of_that_name() -> None:
    admin = NodeAdmin(SINGLE)  # type: ignore[arg-type]
    verbs = admin.verbs()

    assert {name: verb.__name__ for name, verb in verbs.items()} == {
        name: name.replace("operator_", "") for name in verbs
    }
    for name, verb in verbs.items():
        if "polic" in name:
            policies = admin.operator_policies if "operator" in name else admin.policies
            assert verb == getattr(policies, verb.__name__)
