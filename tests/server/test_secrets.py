"""Passwords: in no line of the log, no list, no status, and in no file but as hashes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from conformance import wire
from conformance.raw import CAPABILITIES, Connection
from rigs.nodes import (
    BrokerUnderTest,
    clean_environment,
    leveret_program,
    serving,
)

CANARY = "zQ7x!vault-9"
NUMBERS = ",".join(str(octet) for octet in CANARY.encode())  # as Erlang shows octets


def traces(text: bytes) -> list[bytes]:
    """Return what a text tells of a canary, however it is shown: its first six octets are enough."""
    whole = CANARY.encode()
    forms = {
        whole[:6],
        NUMBERS.rsplit(",", 5)[0].encode(),
        whole.hex().encode()[:12],
        repr(whole[:6]).encode(),
    }
    return [form for form in forms if form in text]


def start_ok(**fields: str | bytes) -> bytes:
    """Return the arguments of a connection.start-ok."""
    given = {"mechanism": "PLAIN", "response": f"\0canary\0{CANARY}", "locale": "en_US"} | fields
    return wire.method(
        "connection.start-ok", client_properties={"capabilities": CAPABILITIES}, **given
    )


def logins() -> Iterator[bytes]:
    """Yield frames of logins, right and wrong ones, and of such that are no start-ok."""
    table = wire.table({"LOGIN": "canary", "PASSWORD": CANARY})
    for payload in (
        start_ok(),
        start_ok(response=f"\0canary\0{CANARY}wrong"),
        start_ok(response=f"\0nobody\0{CANARY}"),
        start_ok(response=CANARY),
        start_ok(response=f"{CANARY}\0canary\0{CANARY}"),
        start_ok(response=f"\0canary\0{CANARY}\0{CANARY}"),
        start_ok(mechanism="AMQPLAIN", response=table[4:]),
        start_ok(mechanism="AMQPLAIN", response=table[4:-2]),
        start_ok(mechanism="AMQPLAIN", response=f"\0canary\0{CANARY}"),
        start_ok(mechanism="EXTERNAL", response=CANARY),
        start_ok()[:-3],
        start_ok() + b"more",
        wire.method("connection.start-ok", mechanism="", response=CANARY)[:-1],
        wire.method("connection.secure-ok", response=CANARY),
        wire.method("connection.secure-ok", response=CANARY)[:-1],
    ):
        yield wire.frame(wire.METHOD, 0, payload)
        yield wire.frame(wire.METHOD, 0, payload)[:-1] + b"\xcd"
        yield wire.frame(wire.METHOD, 1, payload)


def log_in_all_ways(node: BrokerUnderTest) -> list[bytes]:
    """Return what the broker answers."""
    begun = []
    for sent in logins():
        connection = Connection((node.host, node.port))
        connection.send_bytes(b"AMQP\0\0\x09\x01")
        connection.read()
        connection.send_bytes(sent)
        begun.append(connection)
    answers = []
    for connection in begun:
        event = connection.read()
        answers.append(str(event.fields).encode())
        connection.drop()
    return answers


def update_secrets(node: BrokerUnderTest) -> None:
    whole = wire.method("connection.update-secret", new_secret=CANARY, reason="it is time")
    for payload in (whole, whole[:-1], whole + b"x"):
        for frame in (
            wire.frame(wire.METHOD, 0, payload),
            wire.frame(wire.METHOD, 0, payload)[:-1] + b"\xcd",
            wire.frame(wire.METHOD, 1, payload),
        ):
            connection = Connection((node.host, node.port))
            assert connection.open(user="canary", password=CANARY).name == "connection.open-ok"
            connection.channel()
            connection.send_bytes(frame)
            connection.read()
            connection.drop()


def told(node: BrokerUnderTest, *words: str, stdin: str = "", refused: bool = False) -> bytes:
    """Return what ``leveret`` prints, on stdout and stderr."""
    done = subprocess.run(
        [leveret_program(), *words, "--data", str(node.data)],
        input=stdin.encode(),
        env=clean_environment(),
        capture_output=True,
        check=False,
    )
    assert bool(done.returncode) is refused, done
    return done.stdout + done.stderr


def test_no_line_list_or_file_has_a_password(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "debug") as node:
        said = [
            told(node, "ctl", "add_user", "canary", stdin=f"{CANARY}\n"),
            told(node, "ctl", "authenticate_user", "canary", CANARY),
            told(node, "ctl", "authenticate_user", "canary", CANARY + "x", refused=True),
            told(node, "ctl", "change_password", "nobody", CANARY, refused=True),
            told(node, "ctl", "change_password", "canary", CANARY),
            told(node, "ctl", "set_permissions", "canary", ".*", ".*", ".*"),
        ]
        node.import_definitions({"users": [{"name": "imported", "password": CANARY, "tags": ""}]})
        said += log_in_all_ways(node)
        update_secrets(node)
        said += [
            told(node, "ctl", "list_users"),
            told(node, "ctl", "export_definitions", "-"),
            told(node, "ctl", "list_connections"),
            told(node, "status", "--json"),
            told(node, "tree"),
            *(told(node, "ctl", verb) for verb in ("report", "environment", "list_channels")),
        ]
    assert [text for text in said if traces(text)] == []
    assert files_with_traces(tmp_path) == []

    with serving(tmp_path, "--log-level", "debug") as node:
        connection = Connection((node.host, node.port))
        reply = connection.open(user="imported", password=CANARY)
        connection.drop()

    assert reply.reply_code == 530, "logged in, but has no permission in the vhost"
    assert files_with_traces(tmp_path) == []


def files_with_traces(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "log" in files
    return [path for path in files if traces(path.read_bytes())]
