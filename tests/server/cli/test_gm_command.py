"""``leveret gm`` on a real etcd.

Tests: server/cli/etcd_arguments.py, server/cli/gm_arguments.py
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.etcd.key_values import Row
from leveret.etcd.settings import EtcdSettings
from leveret.gm.records.codec import pack
from leveret.gm.records.etcd_store import EtcdGroupStore
from leveret.gm.records.group import Entry, Group, MemberId
from leveret.server.cli.main import main
from rigs.cluster.etcd import Etcd
from rigs.gm.live_ring import LiveRing
from rigs.nodes import leveret_program
from rigs.programs import ended

Tool = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gm(etcd: Etcd, name: str, capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["gm", "--endpoints", etcd.url, "--prefix", f"/{name}", *arguments])
        return code, *capsys.readouterr()

    return run


def put(etcd: Etcd, name: str, group: str, value: bytes) -> None:
    fields = {"key": f"/{name}/gm/{group}".encode(), "value": value}
    etcd.post(
        "/v3/kv/put",
        json.dumps({each: base64.b64encode(text).decode() for each, text in fields.items()}),
    )


RECORD = Group(
    5, 12, (Entry(MemberId("leveret/1", 4), True), Entry(MemberId("leveret/2", 9), False))
)


def test_groups_are_shown_with_their_members_in_ring_order(etcd: Etcd, name: str, gm: Tool) -> None:
    put(etcd, name, "b", pack(RECORD))
    put(etcd, name, "a", pack(Group(0, 0, ())))
    code, out, err = gm()

    assert (code, err) == (0, "")
    first, second, *members = out.splitlines()
    assert first.startswith("a: epoch ")
    assert second.startswith("b: epoch 5, version 12, revision ")
    assert members == ["    leveret/1.4", "    leveret/2.9 dead"]


def test_one_group_is_shown_as_json(etcd: Etcd, name: str, gm: Tool) -> None:
    put(etcd, name, "a", pack(RECORD))
    put(etcd, name, "b", pack(RECORD))
    code, out, _ = gm("b", "--json")
    found = json.loads(out)

    assert code == 0
    assert found.pop("revision") > 0
    assert found == {
        "name": "b",
        "epoch": 5,
        "version": 12,
        "members": [
            {"node": "leveret/1", "number": 4, "alive": True},
            {"node": "leveret/2", "number": 9, "alive": False},
        ],
    }


def test_a_store_without_groups_prints_nothing(gm: Tool) -> None:
    assert gm() == (0, "", "")


def test_a_group_that_is_not_there_exits_64(gm: Tool) -> None:
    code, out, err = gm("none")

    assert (code, out) == (64, "")
    assert "there is no group 'none'" in err


def test_a_damaged_record_exits_1_names_the_key_and_hides_no_other(
    etcd: Etcd, name: str, gm: Tool
) -> None:
    put(etcd, name, "a", b"\xc1")
    put(etcd, name, "b", pack(RECORD))
    code, out, err = gm()

    assert code == 1
    assert f"/{name}/gm/a: record of 1 bytes" in err
    assert "it is not msgpack; delete it, or restore it" in err
    assert out.startswith("b: ")


def test_a_group_is_forgotten_and_shown_as_it_was(etcd: Etcd, name: str, gm: Tool) -> None:
    for group in ("a", "b", "c"):
        put(etcd, name, group, pack(RECORD))
    code, out, err = gm("a", "c", "--forget")

    assert (code, err) == (0, "")
    assert [line[0] for line in out.splitlines() if line[0] != " "] == ["a", "c"]
    assert gm()[1].startswith("b: ")
    assert gm("a", "--forget")[0] == 64


def test_a_damaged_record_can_be_forgotten(etcd: Etcd, name: str, gm: Tool) -> None:
    put(etcd, name, "a", b"\xc1")

    assert gm("a", "--forget")[0] == 1
    assert gm() == (0, "", "")


def test_what_is_to_be_forgotten_must_be_named(etcd: Etcd, name: str, gm: Tool) -> None:
    put(etcd, name, "a", pack(RECORD))
    code, out, err = gm("--forget")

    assert (code, out) == (64, "")
    assert "name the groups" in err
    assert gm()[1].startswith("a: ")


def test_a_group_that_changes_meanwhile_is_not_forgotten(
    etcd: Etcd, name: str, gm: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(etcd, name, "a", pack(RECORD))
    scan = EtcdClient.scan

    async def and_then_change(client: EtcdClient, prefix: str) -> list[Row]:
        rows = await scan(client, prefix)
        put(etcd, name, "a", pack(RECORD))
        return rows

    monkeypatch.setattr(EtcdClient, "scan", and_then_change)
    code, _, err = gm("a", "--forget")

    assert code == 75
    assert f"/{name}/gm/a has changed and was not deleted" in err
    assert gm()[1].startswith("a: ")


def test_names_that_would_change_the_terminal_are_escaped(etcd: Etcd, name: str, gm: Tool) -> None:
    put(etcd, name, "a\x1b[2J\nb", pack(Group(1, 1, (Entry(MemberId("\x1b[1m", 1), True),))))
    _, out, _ = gm()

    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--endpoints", "http://127.0.0.1:1"), 69, "cannot be reached"),
        (("--endpoints", "127.0.0.1:1"), 78, "is not http://HOST:PORT"),
        (("--prefix", "x"), 78, "must begin with /"),
        (("--user", "u"), 78, "both user and password"),
        (("--user", "u", "--password-file", "/nowhere"), 78, "/nowhere cannot be read"),
        (("--timeout", "0"), 78, "above 0"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    gm: Tool, arguments: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = gm(*arguments)

    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_login_that_etcd_refuses_exits_65(gm: Tool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    code, _, err = gm("--user", "u", "--password-file", str(secret))

    assert code == 65
    assert "authentication is not enabled" in err


def test_without_the_extra_the_remedy_is_told(etcd: Etcd, tmp_path: Path) -> None:
    program = "import sys; sys.modules['aiohttp'] = None; from leveret.server.cli.main import main; sys.exit(main())"
    done = ended([sys.executable, "-c", program, "gm", "--endpoints", etcd.url], tmp_path)

    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == "leveret: aiohttp is missing: pip install 'leveret[cluster]'\n"


async def test_the_program_shows_a_ring_that_runs(etcd: Etcd, name: str, tmp_path: Path) -> None:
    runtime = Runtime()
    async with EtcdClient(
        EtcdSettings((etcd.url,), timeout_s=20.0, connect_timeout_s=20.0)
    ) as client:
        ring = LiveRing(runtime, EtcdGroupStore(Background(client), f"/{name}"))
        groups = await ring.joined(3)
        command = [
            leveret_program(),
            "gm",
            "--endpoints",
            etcd.url,
            "--prefix",
            f"/{name}",
            "--json",
        ]
        done = await asyncio.to_thread(ended, command, tmp_path)
        await runtime.shutdown()

    assert (done.returncode, done.stderr) == (0, "")
    shown = {f"{each['node']}.{each['number']}" for each in json.loads(done.stdout)["members"]}
    assert shown == {str(group.me) for group in groups}
