"""The verbs of ``leveret ctl`` about a cluster, against a broker that only answers.

Tests: server/cli/cluster.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leveret.management.verb_table import WithWarnings
from leveret.server.cli.commands import NODE
from leveret.server.cli.main import main


@pytest.fixture
def run(serving: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run_(*arguments: str) -> tuple[int, str, str]:
        code = main(["ctl", *arguments, "--data", str(serving)])
        return code, *capsys.readouterr()

    return run_


INSTEAD = [
    (["join_cluster", "rabbit@hare", "--ram"], "leveret serve --cluster NAME"),
    (["stop_app"], "leveret ctl shutdown"),
    (["start_app"], "leveret serve"),
    (["reset"], "leveret ctl forget_cluster_node NODE"),
    (["force_reset"], "leveret ctl forget_cluster_node NODE"),
]


@pytest.mark.parametrize(("arguments", "remedy"), INSTEAD, ids=lambda each: str(each)[:20])
def test_a_verb_that_is_not_there_says_what_to_do_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], remedy: str
) -> None:
    assert main(["ctl", *arguments, "--data", str(tmp_path)]) == 69

    error = capsys.readouterr().err
    assert error.startswith(f"Error:\n{arguments[0]} is not there. ")
    assert remedy in error


def test_all_nodes_of_a_cluster_are_on_the_page_also_those_that_are_down(
    run: Any, admin: Any
) -> None:
    admin.cluster = {"node": "a", "nodes": ["a", "b", "down"], "running_nodes": ["a", "b"]}

    out = run("cluster_status", "-q")[1]

    assert "Disk Nodes\n\na\nb\ndown\n\nRunning Nodes\n\na\nb\n" in out


def test_a_node_of_a_cluster_has_its_own_name_in_texts(run: Any, serving: Path) -> None:
    assert run("ping")[1].startswith(f"Will ping {NODE}.")
    (serving / "cluster").write_text("prod hare\n")
    assert run("ping")[1].startswith("Will ping hare.")


def test_an_alarm_of_another_node_is_cluster_wide_and_not_local(run: Any, admin: Any) -> None:
    admin.facts["alarms_elsewhere"] = {"b": ["memory"]}

    code, _, err = run("check_alarms", "--formatter", "json")
    found = json.loads(err)
    assert (code, found["local"], found["global"]) == (69, [], ["Memory alarm on node b"])
    assert run("check_local_alarms", "-q")[0] == 0
    assert run("alarms", "-q")[1] == "Memory alarm on node b\n"


def test_the_queues_that_went_with_a_node_are_named(run: Any, admin: Any) -> None:
    code, out, err = run("forget_cluster_node", "hare")

    assert (code, err) == (0, "")
    assert out == (
        "Removing node hare from the cluster\n"
        "1 durable queues of node hare were deleted\na\\nb in vhost /\n"
    )
    assert admin.asked[-1] == ("forget_cluster_node", {"node": "hare", "dry_run": False})
    code, out, _ = run("forget_cluster_node", "hare", "--dry-run", "--formatter", "json")
    assert json.loads(out)["value"] == {"queues": [{"vhost": "/", "name": "a\nb"}]}
    assert admin.asked[-1] == ("forget_cluster_node", {"node": "hare", "dry_run": True})


def test_no_node_is_forgotten_offline(run: Any) -> None:
    code, _, err = run("forget_cluster_node", "hare", "--offline")

    assert code == 64
    assert "use any node that runs" in err


def test_nodes_are_awaited_as_rabbitmqctl_does(run: Any) -> None:
    banner = (
        f"Will wait for at least 2 nodes to join the cluster of {NODE}. Timeout: 300 seconds.\n"
    )
    assert run("await_online_nodes", "2") == (0, banner, "")
    code, _, err = run("await_online_nodes", "3", "-t", "0.05", "-q")
    late = "Error: timed out while waiting. Not enough nodes joined"
    assert (code, err) == (70, f"Error:\n{late} {NODE}'s cluster.\n")
    for count in ("0", "x"):
        code, _, err = run("await_online_nodes", count)
        assert (code, "must be a positive integer" in err) == (64, True)


def test_a_single_node_does_not_wait_for_others_in_vain(run: Any, admin: Any) -> None:
    admin.running = [""]

    assert run("await_online_nodes", "1", "-q") == (0, "", "")
    code, _, err = run("await_online_nodes", "2", "-q")
    assert (code, "this is a single node" in err) == (69, True)


def test_warnings_of_the_broker_are_on_stderr(
    tmp_path: Path, serve_at: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def list_connections() -> Any:
        return WithWarnings([{"user": "ann"}], ["what node b has is missing: it is slow"])

    with serve_at(tmp_path, {"list_connections": list_connections}):
        assert main(["ctl", "list_connections", "user", "-s", "--data", str(tmp_path)]) == 0

    out, err = capsys.readouterr()
    assert (out, err) == ("ann\n", "Warning: what node b has is missing: it is slow\n")
