"""Names that clients and operators choose, and passwords, in the output of every verb and in the log."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conformance.raw import Connection
from leveret.core.addresses import Address
from leveret.core.log.output import LineFormatter
from leveret.management.definitions.node_definitions import NodeDefinitions
from leveret.server.broker import Broker
from leveret.server.cli.commands import COMMANDS, Command
from leveret.server.cli.main import main
from leveret.server.config.config import Config
from leveret.server.output.formats import FORMATTERS

# Markup, ANSI, C1 controls, direction marks, paths, regular expressions, format strings, shell, quotes.
NASTY = "größe 中 [red]<b>&\x1b[31m\x9b1m\u202e../../etc %s {0} $(id) `x` (a+)+$ \"'\\ \u2028 ende"
CANARY = "canary-7f3a19"
WRONG = "canary-wrong-5521"
TABLE = {"n\x1b]0;x\x07": NASTY}


def words(command: Command) -> list[str]:
    """Return arguments for a verb: hostile names, and passwords that nobody may see."""
    own = {
        "password": CANARY,
        "definition": '{"max-queues":1}',
        "value": '"\\u001b"',
        "reason": NASTY,
    }
    given = [own.get(name, NASTY) for name in command.positional]
    vhost = ["-p", NASTY] if command.has_vhost else []
    rest = [*given, *command.columns]
    timeout = "0.01" if command.verb == "wait" else "5"
    return [command.verb, "-t", timeout, *vhost, *(["--"] if rest else []), *rest]


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """A broker full of hostile names."""
    monkeypatch.chdir(tmp_path)
    config = Config(
        listen=(Address("127.0.0.1", 0),),
        data_dir=tmp_path / "d",
        default_pass=CANARY,
        cluster_name=NASTY,
    )
    async with Broker(config) as running:
        yield running


def document() -> dict[str, Any]:
    there = {"vhost": NASTY, "name": NASTY}
    return {
        "vhosts": [{"name": NASTY, "description": NASTY, "tags": [NASTY]}],
        "users": [{"name": NASTY, "password": CANARY, "tags": [NASTY]}],
        "permissions": [
            {"user": each, "vhost": NASTY, "configure": ".*", "write": ".*", "read": ".*"}
            for each in ("guest", NASTY)
        ],
        "topic_permissions": [
            {"user": NASTY, "vhost": NASTY, "exchange": NASTY, "write": "\x1b", "read": "\x1b"}
        ],
        "parameters": [there | {"component": NASTY, "value": TABLE}],
        "global_parameters": [{"name": NASTY, "value": TABLE}],
        "policies": [there | {"pattern": "\x1b", "definition": {"max-length": 5}}],
        "exchanges": [there | {"type": "topic", "arguments": TABLE}],
        "queues": [there | {"arguments": TABLE}],
        "bindings": [
            {"vhost": NASTY, "source": NASTY, "destination": NASTY, "destination_type": "queue"}
            | {"routing_key": NASTY, "arguments": TABLE}
        ],
    }


async def consuming(broker: Broker) -> Connection:
    """A connection with a hostile consumer tag."""

    def connect() -> Connection:
        connection = Connection((broker.addresses[0].host, broker.addresses[0].port))
        assert connection.open(password=CANARY, vhost=NASTY).name == "connection.open-ok"
        channel = connection.channel()
        channel.ok("basic.consume", queue=NASTY, consumer_tag=NASTY, arguments={"x-\x1b": NASTY})
        return connection

    return await asyncio.to_thread(connect)


def called(arguments: list[str]) -> None:
    with suppress(SystemExit):  # argparse refuses some
        main(arguments)


async def test_no_verb_lets_a_name_reach_the_terminal_raw_or_tells_a_password(
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "leveret")
    await NodeDefinitions(broker.node).import_definitions(document())
    connection = await consuming(broker)
    seen: dict[tuple[str, str], str] = {}
    reading = [each for each in COMMANDS if each.columns or each.shown or not each.positional]
    changing = [each for each in COMMANDS if each not in reading]

    for command, formatter in itertools.product(reading + changing, FORMATTERS):
        given = words(command)
        await asyncio.to_thread(
            called, ["ctl", "--data", str(tmp_path / "d"), "--formatter", formatter, *given]
        )
        out, err = capsys.readouterr()
        for text in (out, err):
            raw = {each for each in text if not each.isprintable()} - {"\n", "\t"}
            assert not raw, (command.verb, formatter, raw)
            assert CANARY not in text, (command.verb, formatter)
        seen[command.verb, formatter] = out
    connection.drop()

    # The names were there: each list has shown them in a form that can be printed.
    lists = ("list_queues", "list_consumers", "list_exchanges", "list_bindings", "list_policies")
    for verb in (*lists, "list_vhosts", "list_topic_permissions", "list_global_parameters"):
        assert "(id)" in seen[verb, "table"], verb
    lines = [LineFormatter().format(record) for record in caplog.records]
    assert len(lines) > 50
    for line in lines:
        assert line.isprintable(), line
        assert CANARY not in line


async def test_every_verb_prints_utf_8_whatever_the_locale_says(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await NodeDefinitions(broker.node).import_definitions(document())
    reading = [each for each in COMMANDS if each.columns or each.shown or not each.positional]
    shown = 0

    for command, formatter in itertools.product(reading, ("table", "json")):
        out, err = [io.TextIOWrapper(io.BytesIO(), "ascii", newline="") for _ in range(2)]
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", err)
        given = ["ctl", "--data", str(tmp_path / "d"), "--formatter", formatter, *words(command)]
        await asyncio.to_thread(called, given)
        for stream in (out, err):
            stream.flush()
            shown += stream.buffer.getvalue().decode("utf-8").count("größe 中")  # type: ignore[attr-defined]

    assert shown > len(reading)


async def test_a_login_that_fails_tells_no_password(
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "leveret")
    for words_ in (["authenticate_user", "guest", WRONG], ["add_user", "guest", WRONG]):
        await asyncio.to_thread(called, ["ctl", "--data", str(tmp_path / "d"), *words_])
        assert WRONG not in "".join(capsys.readouterr())
    assert WRONG not in caplog.text
