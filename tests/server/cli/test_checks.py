"""Health checks, pages and local verbs of ``leveret ctl`` against a broker that only answers.

Tests: server/cli/commands.py, server/cli/reports.py, server/output/node_pages.py
"""

from __future__ import annotations

import base64
import io
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from leveret.metadata.passwords import SHA256, SHA512, verify_password
from leveret.server.cli import life
from leveret.server.cli.commands import NODE
from leveret.server.cli.main import main


@pytest.fixture
def run(serving: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run_(*arguments: str) -> tuple[int, str, str]:
        code = main(["ctl", *arguments, "--data", str(serving)])
        return code, *capsys.readouterr()

    return run_


# (verb and arguments, text of rabbitmq-diagnostics 3.10.8, its JSON) where all is well.
PASSED = [
    (["ping"], "Ping succeeded", {"message": "Ping succeeded"}),
    (["check_running"], f"RabbitMQ on node {NODE} is fully booted and running", {"message": f"RabbitMQ on node {NODE} is fully booted and running"}),
    (["is_running"], f"RabbitMQ on node {NODE} is fully booted and running", {"message": f"RabbitMQ on node {NODE} is fully booted and running", "result": True}),
    (["check_alarms"], f"Node {NODE} reported no alarms, local or clusterwide", {"result": "ok"}),
    (["check_local_alarms"], f"Node {NODE} reported no local alarms", {"result": "ok"}),
    (["alarms"], f"Node {NODE} reported no alarms, local or clusterwide", {"alarms": [], "node": NODE, "result": "ok"}),
    (["check_virtual_hosts"], f"Node {NODE} reported all vhosts as running", {"result": "ok"}),
    (["check_port_listener", "5672"], f"A listener for port 5672 is running on node {NODE}.", {"node": NODE, "port": "5672", "result": "ok"}),
    (["check_protocol_listener", "AMQP091"], f"A listener for protocol amqp is running on node {NODE}.", {"node": NODE, "protocol": "amqp", "result": "ok"}),
    (["node_health_check"], "Health check passed", {"message": "Health check passed"}),
    (["server_version"], "3.10.8", {"result": "ok", "value": "3.10.8"}),
    (["os_env"], "LEVERET_LOOP=asyncio", {"node": NODE, "result": "ok", "variables": {"LEVERET_LOOP": "asyncio"}}),
    (["authenticate_user", "hare", "pw"], "Success", {"message": "Success"}),
    (["delete_queue", "q"], "Queue was successfully deleted with 3 ready messages", {"message": "Queue was successfully deleted with 3 ready messages"}),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text", "value"), PASSED, ids=lambda each: str(each)[:30])
def test_a_verb_says_in_either_form_that_all_is_well(
    run: Any, arguments: list[str], text: str, value: Any
) -> None:
    assert run(*arguments, "-q") == (0, text + "\n", "")
    code, out, err = run(*arguments, "--formatter", "json")
    assert (code, json.loads(out), err) == (0, value, "")


def test_a_verb_without_a_text_is_ok_in_json(run: Any) -> None:
    code, out, _ = run("clear_policy", "p", "--formatter", "json")

    assert (code, json.loads(out)) == (0, {"node": NODE, "result": "ok"})


# The same checks with an alarm, a vhost that is down, and listeners elsewhere.
FAILED = [
    (["check_alarms"], f"Memory alarm on node {NODE}\n", {"global": [], "local": [f"Memory alarm on node {NODE}"], "message": f"Node {NODE} reported alarms", "result": "error"}),
    (["check_local_alarms"], f"Error:\nMemory alarm on node {NODE}\n", {"local": [f"Memory alarm on node {NODE}"], "message": f"Node {NODE} reported local alarms", "result": "error"}),
    (["check_virtual_hosts"], f"Error:\nSome virtual hosts on node {NODE} are down:\nor\\x1bders: no space\n", {"down_vhosts": ["or\x1bders"], "result": "error"}),
    (["check_protocol_listener", "mqtt"], f"Error:\nNo listener for protocol mqtt is active on node {NODE}. Found listeners for the following protocols: amqp, amqp\n", None),
    (["check_port_listener", "1"], f"No listener for port 1 is active on node {NODE}. Found listeners that use the following ports: 5672, 5672\n", None),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text", "value"), FAILED, ids=lambda each: str(each)[:30])
def test_a_check_that_finds_something_exits_69_in_either_form(
    run: Any, admin: Any, arguments: list[str], text: str, value: Any
) -> None:
    admin.facts["alarms"] = ["memory"]
    admin.down = [{"vhost": "or\x1bders", "reason": "no space"}]

    assert run(*arguments, "-q") == (69, "", text)
    code, out, err = run(*arguments, "--formatter", "json")
    assert (code, out) == (69, "")
    if value is not None:
        assert json.loads(err) == value
    assert run(*arguments, "-s") == (69, "", "")


def test_the_deprecated_check_names_alarms(run: Any, admin: Any) -> None:
    admin.facts["alarms"] = ["memory", "disk"]

    assert run("node_health_check", "-q") == (
        70,
        "",
        "Error:\nError: health check failed. Message: resource alarm(s) in effect:[memory,disk]\n",
    )


def test_listeners_are_told_with_their_purpose(run: Any) -> None:
    purpose = "protocol: amqp, purpose: AMQP 0-9-1"
    assert run("listeners", "-q")[1].splitlines() == [
        f"Interface: 127.0.0.1, port: 5672, {purpose}",
        f"Interface: [::1], port: 5672, {purpose}",
    ]


def test_a_ping_says_what_it_checks(run: Any) -> None:
    assert run("ping")[1].splitlines() == [
        f"Will ping {NODE}. This only checks if the OS process is running and answers at its control socket."
        " Timeout: 60000 ms.",
        "Ping succeeded",
    ]


def test_ports_are_connected_to(run: Any, admin: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        admin.facts["listeners"] = [{"interface": "0.0.0.0", "port": port, "protocol": "amqp"}]
        assert run("check_port_connectivity", "-q") == (
            0,
            f"Successfully connected to ports {port} on node {NODE}.\n",
            "",
        )
    code, _, err = run("check_port_connectivity", "-q")
    assert (code, err.splitlines()[:2]) == (
        69,
        ["Error:", f"Connection to ports of the following listeners on node {NODE} failed: "],
    )


def test_certificates_that_expire_are_told(run: Any, admin: Any) -> None:
    verb = "check_certificate_expiration"
    assert run(verb, "-q") == (0, "No certificates are expiring within 4 weeks.\n", "")
    now_s, day_s = time.time(), 86_400
    dates = [[0.0, now_s + 20 * day_s], [now_s + day_s, now_s + 99 * day_s], [0.0, 4e9]]
    listener = {"interface": "[::]", "port": 5671, "protocol": "amqp/ssl"}
    admin.certificate_rows = [listener | {"files": {"/c.pem": dates}}]

    code, _, err = run(verb, "-q")
    assert code == 69
    assert err.startswith("Interface: [::], port: 5671, certificate /c.pem: expires on 20")
    assert err.count("expires on") == err.count("not valid before") == 1
    code, _, err = run(verb, "--formatter", "json")
    assert (code, json.loads(err)["expired"][0]["port"]) == (69, 5671)
    admin.certificate_rows[0]["files"] = {"/c.pem": dates[:1]}
    within = run(verb, "-q", "--within", "1", "--unit", "weeks")
    assert within == (0, "No certificates are expiring within 1 week.\n", "")
    assert run(verb, "--unit", "hours")[0] == 64


def test_status_has_rabbitmqs_sections(run: Any) -> None:
    code, out, _ = run("status", "-q", "--unit", "mb")

    assert code == 0
    for line in (
        "OS PID: 4711",
        "RabbitMQ version: 3.10.8",
        "Total memory used: 200.0 mb",
        "Memory high watermark setting: 0.4 of available memory, computed to: 9500.0 mb",
        "other: 150.0 mb (75.0 %)",
        "Total: 123, limit: 20000",
        "Free disk space: unknown mb",
        "Connection count: 2",
        "(none)",
    ):
        assert line in out.splitlines(), out
    found = json.loads(run("status", "--formatter", "json")[1])
    assert (found["rabbitmq_version"], found["totals"]["queue_count"]) == ("3.10.8", 1)
    assert run("status", "--unit", "tb")[0] == 64


def test_the_cluster_is_of_one_node(run: Any) -> None:
    out = run("cluster_status", "-q")[1]

    assert out.startswith(f"Basics\n\nCluster name: leveret@x\n\nDisk Nodes\n\n{NODE}\n")
    found = json.loads(run("cluster_status", "--formatter", "json")[1])
    assert (found["running_nodes"], found["partitions"]) == ([NODE], {})


def test_the_environment_is_a_list_of_pairs(run: Any) -> None:
    assert run("environment", "-q")[1] == (
        '[{leveret,\n     [{channel_max,2047},\n      {default_pass,<<"********">>},\n'
        '      {loopback_users,[<<"guest">>]}]}]\n'
    )


def test_parts_of_the_memory_are_told_largest_first(run: Any) -> None:
    assert run("memory_breakdown", "-q", "--unit", "bytes")[1].splitlines() == [
        "other: 150000000 bytes (75.0%)",
        "queue_procs: 50000000 bytes (25.0%)",
        "",
    ]


def test_the_report_has_all_pages_and_lists(run: Any) -> None:
    code, out, err = run("report")

    assert (code, err) == (0, "")
    for line in (
        f"Status of node {NODE} ...",
        "Listing connections ...",
        "Listing channels ...",
        "Listing queues for vhost v ...",
        'Listing policies for vhost "/" ...',
    ):
        assert line in out.splitlines()
    assert run("report", "--formatter", "json")[0] == 64


@pytest.mark.parametrize(("named", "algorithm"), [("sha256", SHA256), ("SHA-512", SHA512)])
def test_a_password_is_hashed_without_a_broker(
    named: str, algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["hash_password", "sésame", "--hashing-algorithm", named, "--data", str(tmp_path)]
    assert main(["ctl", *arguments]) == 0

    stored = base64.b64decode(capsys.readouterr().out)
    assert verify_password("sésame".encode(), stored, algorithm)


def test_a_password_that_is_none_is_not_hashed(run: Any, monkeypatch: Any) -> None:
    assert run("hash_password", "")[0] == 65
    assert run("hash_password", "x", "--hashing-algorithm", "crc")[0] == 65
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("hash_password")[0] == 70


def test_the_log_is_read_from_its_end(run: Any, admin: Any, tmp_path: Path) -> None:
    code, _, err = run("log_tail", "-q")
    assert (code, err) == (69, "Error:\nNo log files configured on the node\n")
    log = tmp_path / "broker.log"
    lines = [f"line {number} \x1b" + "x" * 100 for number in range(2_000)]
    log.write_text("\n".join(lines) + "\n")
    admin.facts["log_files"] = [str(log)]

    assert run("log_location", "-q") == (0, f"{log}\n", "")
    shown = [line.replace("\x1b", "\\x1b") for line in lines]
    for count in (0, 1, 50, 1_999, 2_000, 5_000):
        out = run("log_tail", "-q", "-N", str(count))[1]
        assert out.splitlines() == (shown[-count:] if count else [""])
    log.unlink()
    assert run("log_tail")[0] == 65


def test_startup_is_awaited_until_every_vhost_serves(
    run: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.facts["vhosts_down"] = {"/": "no space"}
    waits = []

    def wait(delay_s: float) -> None:
        waits.append(delay_s)
        if len(waits) == 3:
            admin.facts["vhosts_down"] = {}

    monkeypatch.setattr(life.time, "sleep", wait)
    assert run("await_startup") == (0, "", "")
    assert len(waits) == 3


def test_startup_is_not_awaited_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ctl", "await_startup", "-t", "0.01", "--data", str(tmp_path)]) == 75
    assert capsys.readouterr().err == (
        f"Error: operation await_startup on node {NODE} timed out. Timeout value used: 10\n"
    )


@pytest.mark.parametrize("verb", ["list_user_limits", "list_vhost_limits"])
def test_limits_are_one_json_line_or_rows(run: Any, admin: Any, verb: str) -> None:
    column = verb.split("_")[1]
    admin.limits = [{column: "x", "limits": '{"max-queues":1}'}]

    assert run(verb, "-q")[1] == '{"max-queues":1}\n'
    assert run(verb, "-q", "--global")[1] == f'{column}\tlimits\nx\t{{"max-queues":1}}\n'
    admin.limits = []
    assert run("list_vhost_limits", "-q")[1] == "\n"


def test_a_broker_that_does_not_run_is_69_for_every_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("ping", "check_running", "is_running", "check_alarms", "listeners", "status"):
        assert main(["ctl", "-q", verb, "--data", str(tmp_path)]) == 69
        assert capsys.readouterr().err.startswith(f"leveret: no broker is running in {tmp_path};")
