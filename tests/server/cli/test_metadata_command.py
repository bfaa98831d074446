"""``leveret metadata`` on a real etcd: a data directory into etcd, and back.

Tests: metadata/etcd/transfer.py, server/cli/metadata_arguments.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.metadata.environment import packed
from leveret.metadata.etcd.codec import Keys, NodeState, packed_node
from leveret.metadata.reader import read_contents, read_counters
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import (
    BindingRow,
    DeletedQueueRow,
    ExchangeRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    UserRow,
    VhostRow,
)
from leveret.server.cli.main import main
from leveret.server.process import DataDirectory
from rigs.cluster.etcd import Etcd
from rigs.waiting import wait_until

Tool = Callable[..., tuple[int, str, str]]

ROWS: list[Row] = [
    VhostRow("/", "the default"),
    UserRow("guest", b"\x00salt"),
    PermissionRow("guest", "/", ".*", "", "^a"),
    ExchangeRow("/", "x", "topic", arguments={"alternate-exchange": ("S", b"ae")}),
    *(QueueRow("/", f"q{at}", queue_no=at) for at in range(1, 301)),
    *(BindingRow("/", "x", "queue", f"q{at}", b"\xff") for at in range(1, 301)),
    PolicyRow("/", "p", "^q", {"max-length": 1}),
    DeletedQueueRow(7),
]


@pytest.fixture
def tool(etcd: Etcd, name: str, capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(verb: str, *arguments: str) -> tuple[int, str, str]:
        where = ("--endpoints", etcd.url, "--prefix", f"/{name}", "--timeout", "20")
        code = main(["metadata", verb, *where, *arguments])
        return code, *capsys.readouterr()

    return run


def data_directory(path: Path, rows: list[Row]) -> Path:
    with DataDirectory(path):
        store = MetadataStore(path / "metadata", lambda tell: tell())
        store.next_boot_epoch()
        outcomes: list[object] = []
        store.write(rows, [], outcomes.append)
        wait_until(lambda: outcomes == [None])
        store.close()
    return path


def rows_in(path: Path) -> list[str]:
    return sorted(map(repr, read_contents(path / "metadata").rows()))


def of(path: Path, node: str = "n1") -> tuple[str, ...]:
    return "--data", str(path), "--node", node


def test_metadata_goes_into_etcd_and_comes_back_as_it_was(tmp_path: Path, tool: Tool) -> None:
    one = data_directory(tmp_path / "one", ROWS)
    before = rows_in(one)
    code, out, err = tool("to-etcd", *of(one))
    assert (code, err) == (0, "")
    assert f"{len(ROWS)} rows of {one} are in etcd" in out
    assert rows_in(one) == before

    code, out, _ = tool("show", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["rows"]["queues"], found["rows"]["bindings"], found["nodes"]) == (300, 300, [])
    assert "300 queues" in tool("show")[1]

    two = tmp_path / "two"
    code, out, err = tool("from-etcd", *of(two))
    assert (code, err) == (0, "")
    assert rows_in(two) == before
    epoch, queue_no = read_counters(one / "metadata")
    assert read_counters(two / "metadata") == (epoch, queue_no)


def test_a_directory_with_metadata_is_replaced_only_if_told_and_a_copy_is_kept(
    tmp_path: Path, tool: Tool
) -> None:
    one = data_directory(tmp_path / "one", ROWS)
    two = data_directory(tmp_path / "two", [VhostRow("other")])
    assert tool("to-etcd", *of(one))[0] == 0
    code, _, err = tool("from-etcd", *of(two))
    assert (code, "give --replace" in err) == (65, True)
    assert rows_in(two) == [repr(VhostRow("other"))]

    assert tool("from-etcd", *of(two), "--replace")[0] == 0
    assert rows_in(two) == rows_in(one)
    assert read_contents(two / "metadata.old").rows() == [VhostRow("other")]
    code, _, err = tool("from-etcd", *of(two), "--replace")
    assert (code, "metadata.old exists" in err) == (65, True)


def test_metadata_in_etcd_is_never_written_over(tmp_path: Path, tool: Tool) -> None:
    one = data_directory(tmp_path / "one", ROWS)
    assert tool("to-etcd", *of(one))[0] == 0
    code, _, err = tool("to-etcd", *of(one))

    assert code == 65
    assert "there is metadata under" in err
    assert "etcdctl del --prefix" in err


def put(etcd: Etcd, key: str, value: bytes) -> None:
    import base64

    fields = {"key": key.encode(), "value": value}
    body = {each: base64.b64encode(text).decode() for each, text in fields.items()}
    etcd.post("/v3/kv/put", json.dumps(body))


def test_a_move_that_was_cut_short_is_begun_again(
    tmp_path: Path, etcd: Etcd, name: str, tool: Tool
) -> None:
    keys = Keys(f"/{name}", "n1")
    put(etcd, keys.row(QueueRow("/", "left")), packed([1, [1], QueueRow("/", "left").to_fields()]))
    code, _, err = tool("show")
    assert (code, "cut short; repeat it" in err) == (65, True)

    one = data_directory(tmp_path / "one", ROWS)
    assert tool("to-etcd", *of(one))[0] == 0
    assert '"queues":300' in tool("show", "--json")[1].replace(" ", "")


def test_rows_whose_vhost_is_missing_are_left_out_with_a_warning(
    tmp_path: Path, tool: Tool
) -> None:
    one = data_directory(tmp_path / "one", [VhostRow("/"), QueueRow("gone", "q", queue_no=1)])
    code, out, err = tool("to-etcd", *of(one))

    assert code == 0
    assert "left out, what it hangs on is missing: queues ('gone', 'q')" in err
    assert out.startswith("1 rows")


def test_while_a_node_uses_it_nothing_is_moved(
    tmp_path: Path, etcd: Etcd, name: str, tool: Tool
) -> None:
    keys = Keys(f"/{name}", "n2")
    one = data_directory(tmp_path / "one", ROWS)
    put(etcd, keys.own, packed_node(NodeState("u", 1, 1)))
    code, _, err = tool("to-etcd", *of(one))
    assert (code, "stop the nodes" in err) == (65, True)

    put(etcd, keys.format, packed(1))
    code, _, err = tool("from-etcd", *of(tmp_path / "two"))
    assert (code, "stop the nodes" in err) == (65, True)
    assert "node n2: applied 1" in tool("show")[1]


def test_a_directory_in_use_or_without_metadata_is_refused(tmp_path: Path, tool: Tool) -> None:
    one = data_directory(tmp_path / "one", ROWS)
    with DataDirectory(one):
        code, _, err = tool("to-etcd", *of(one))
    assert (code, "is in use by the broker" in err) == (78, True)
    code, _, err = tool("to-etcd", *of(tmp_path / "none"))
    assert (code, "has no metadata" in err) == (78, True)
    assert not (tmp_path / "none").exists()
    code, _, err = tool("show")
    assert (code, "there is no metadata under" in err) == (65, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--endpoints", "http://127.0.0.1:1"), 69, "cannot be reached"),
        (("--endpoints", "127.0.0.1:1"), 78, "is not http://HOST:PORT"),
        (("--prefix", "x"), 78, "must begin with /"),
        (("--user", "u"), 78, "both user and password"),
    ],
)
def test_settings_that_cannot_work_are_one_line(
    tool: Tool, arguments: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = tool("show", *arguments)

    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
