"""The command line against a broker that only records the requests.

Tests: server/cli/actions.py, server/cli/commands.py, server/cli/ctl.py
"""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest

import leveret
from leveret.server.cli.commands import COMMANDS, NODE
from leveret.server.cli.ctl import VERBS
from leveret.server.cli.main import main


@pytest.fixture
def run(serving: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run_(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--data", str(serving)])
        return code, *capsys.readouterr()

    return run_


# (arguments of ctl, what the broker was asked); banners as rabbitmqctl 3.10.8 prints them.
ASKED = [
    (["add_user", "hare", "pw"], "add_user", {"name": "hare", "password": "pw"}, 'Adding user "hare" ...'),
    (["change_password", "hare", "pw"], "change_password", {"name": "hare", "password": "pw"}, 'Changing password for user "hare" ...'),
    (["set_user_tags", "hare", "a", "b"], "set_user_tags", {"name": "hare", "tags": ["a", "b"]}, 'Setting tags for user "hare" to [a, b] ...'),
    (["set_user_tags", "hare"], "set_user_tags", {"name": "hare", "tags": []}, 'Setting tags for user "hare" to [] ...'),
    (["authenticate_user", "hare", "pw"], "authenticate_user", {"name": "hare", "password": "pw"}, 'Authenticating user "hare" ...'),
    (["set_permissions", "-p", "/v", "hare", ".*", "^a", ""], "set_permissions", {"vhost": "/v", "user": "hare", "configure": ".*", "write": "^a", "read": ""}, 'Setting permissions for user "hare" in vhost "/v" ...'),
    (["set_permissions", "hare", ".*", "^a", "x"], "set_permissions", {"vhost": "/", "user": "hare", "configure": ".*", "write": "^a", "read": "x"}, 'Setting permissions for user "hare" in vhost "/" ...'),
    (["clear_permissions", "hare"], "clear_permissions", {"vhost": "/", "user": "hare"}, 'Clearing permissions for user "hare" in vhost "/" ...'),
    (["trace_on"], "trace_on", {"vhost": "/", "rate": 1.0}, 'Starting tracing for vhost "/" ...'),
    (["trace_on", "-p", "v", "--rate", "0.5"], "trace_on", {"vhost": "v", "rate": 0.5}, 'Starting tracing for vhost "v" ...'),
    (["trace_off", "-p", "v"], "trace_off", {"vhost": "v"}, 'Stopping tracing for vhost "v" ...'),
    (["add_vhost", "v"], "add_vhost", {"name": "v", "description": "", "tags": []}, 'Adding vhost "v" ...'),
    (["add_vhost", "v", "--description", "d e", "--tags", "a, b"], "add_vhost", {"name": "v", "description": "d e", "tags": ["a", "b"]}, 'Adding vhost "v" ...'),
    (["set_vhost_tags", "v", "a", "b"], "set_vhost_tags", {"name": "v", "tags": ["a", "b"]}, 'Setting tags for virtual host "v" to [a, b] ...'),
    (["clear_password", "hare"], "clear_password", {"name": "hare"}, 'Clearing password for user "hare" ...'),
    (["set_topic_permissions", "-p", "/v", "hare", "amq.topic", "^a", ""], "set_topic_permissions", {"vhost": "/v", "user": "hare", "exchange": "amq.topic", "write": "^a", "read": ""}, 'Setting topic permissions on "amq.topic" for user "hare" in vhost "/v" ...'),
    (["clear_topic_permissions", "hare"], "clear_topic_permissions", {"vhost": "/", "user": "hare", "exchange": None}, 'Clearing topic permissions for user "hare" in vhost "/" ...'),
    (["clear_topic_permissions", "hare", "t"], "clear_topic_permissions", {"vhost": "/", "user": "hare", "exchange": "t"}, 'Clearing topic permissions on "t" for user "hare" in vhost "/" ...'),
    (["set_user_limits", "hare", "{}"], "set_user_limits", {"user": "hare", "definition": "{}"}, 'Setting user limits to "{}" for user "hare" ...'),
    (["clear_user_limits", "hare", "all"], "clear_user_limits", {"user": "hare", "limit_type": "all"}, 'Clearing all limits for user "hare" ...'),
    (["clear_user_limits", "hare", "max-channels"], "clear_user_limits", {"user": "hare", "limit_type": "max-channels"}, 'Clearing "max-channels" limit for user "hare" ...'),
    (["set_vhost_limits", "-p", "/v", "{}"], "set_vhost_limits", {"vhost": "/v", "definition": "{}"}, 'Setting vhost limits to "{}" for vhost "/v" ...'),
    (["clear_vhost_limits"], "clear_vhost_limits", {"vhost": "/"}, 'Clearing vhost "/" limits ...'),
    (["set_parameter", "-p", "/v", "c", "n", "1"], "set_parameter", {"vhost": "/v", "component": "c", "name": "n", "value": "1"}, 'Setting runtime parameter "n" for component "c" to "1" in vhost "/v" ...'),
    (["clear_parameter", "c", "n"], "clear_parameter", {"vhost": "/", "component": "c", "name": "n"}, 'Clearing runtime parameter "n" for component "c" on vhost "/" ...'),
    (["set_cluster_name", "a@b"], "set_cluster_name", {"name": "a@b"}, "Setting cluster name to a@b ..."),
    (["set_global_parameter", "n", "1"], "set_global_parameter", {"name": "n", "value": "1"}, 'Setting global runtime parameter "n" to "1" ...'),
    (["clear_global_parameter", "n"], "clear_global_parameter", {"name": "n"}, 'Clearing global runtime parameter "n" ...'),
    (["purge_queue", "-p", "/v", "q"], "purge_queue", {"vhost": "/v", "name": "q"}, "Purging queue 'q' in vhost '/v' ..."),
    (["delete_queue", "q"], "delete_queue", {"vhost": "/", "name": "q", "if_empty": False, "if_unused": False}, "Deleting queue 'q' on vhost '/' ..."),
    (["delete_queue", "q", "-e", "--if-unused"], "delete_queue", {"vhost": "/", "name": "q", "if_empty": True, "if_unused": True}, "Deleting queue 'q' on vhost '/' if queue is empty and if queue is unused ..."),
    (["close_all_user_connections", "hare", "bye"], "close_all_user_connections", {"user": "hare", "reason": "bye"}, "Closing connections of user hare, reason: bye..."),
    (["delete_vhost", "v"], "delete_vhost", {"name": "v"}, 'Deleting vhost "v" ...'),
    (["close_connection", "<leveret.1>", "bye"], "close_connection", {"pid": "<leveret.1>", "reason": "bye"}, "Closing connection <leveret.1>, reason: bye..."),
    (["close_all_connections", "bye"], "close_all_connections", {"vhost": "/", "reason": "bye"}, "Closing all connections in vhost /, reason: bye..."),
    (["set_vm_memory_high_watermark", "0.3"], "set_vm_memory_high_watermark", {"size_bytes": 0, "share": 0.3}, "Setting memory threshold to 0.3 ..."),
    (["set_vm_memory_high_watermark", "absolute", "2GB"], "set_vm_memory_high_watermark", {"size_bytes": 2_000_000_000, "share": None}, "Setting memory threshold to 2GB bytes ..."),
    (["set_disk_free_limit", "100MB"], "set_disk_free_limit", {"size_bytes": 100_000_000, "share": None}, "Setting disk free limit to 100MB bytes ..."),
    (["set_disk_free_limit", "mem_relative", "0.5"], "set_disk_free_limit", {"size_bytes": 0, "share": 0.5}, "Setting disk free limit to 0.5 times the total RAM ..."),
    (["close_all_connections", "--global", "bye"], "close_all_connections", {"vhost": None, "reason": "bye"}, "Closing all connections across all vhosts, reason: bye..."),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "verb", "wanted", "banner"), ASKED)
def test_a_verb_asks_the_broker_and_says_what_it_does(
    run: Any, admin: Any, arguments: list[str], verb: str, wanted: dict[str, Any], banner: str
) -> None:
    code, out, err = run("ctl", *arguments)

    assert (code, err) == (0, "")
    assert admin.asked == [(verb, wanted)]
    assert out.splitlines()[0] == banner


def test_every_verb_of_the_socket_has_a_command(admin: Any) -> None:
    commands = {command.verb for command in COMMANDS}

    assert set(admin.verbs()) - commands == {
        "about", "certificates", "running_nodes", "tree", "take_snapshot",
    }  # fmt: skip
    assert commands - set(admin.verbs()) == set(VERBS) - set(admin.verbs())


def test_a_refusal_exits_with_rabbitmqs_code_and_text(run: Any) -> None:
    code, _, err = run("ctl", "-q", "add_user", "guest", "x")

    assert (code, err) == (70, 'Error:\nUser "guest" already exists\n')


def test_no_broker_exits_69_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["status"], ["tree"], ["ctl", "-q", "list_users"]):
        assert main([*arguments, "--data", str(tmp_path)]) == 69
        err = capsys.readouterr().err
        assert err.startswith(f"leveret: no broker is running in {tmp_path};")
        assert err.count("\n") == 1


def test_the_environment_names_the_data_directory(
    serving: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_DATA", str(serving))

    assert main(["ctl", "-s", "list_queues"]) == 0
    assert capsys.readouterr().out == "lev.a\t2\nlev.b\t0\n"


def test_a_failing_broker_exits_70(run: Any) -> None:
    code, _, err = run("ctl", "-q", "delete_user", "nope")

    assert (code, err) == (70, "leveret: KeyError: 'nope'\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["ctl"],
        ["ctl", "nonsense"],
        ["ctl", "add_user"],
        ["ctl", "add_user", "a", "b", "c"],
        ["serve", "--log-level", "loud"],
        ["ctl", "list_users", "--formatter", "xml"],
        ["status", "--timeout", "soon"],
        ["ctl", "-t", "nan", "status"],
        ["ctl", "-t", "-1", "status"],
        ["ctl", "-t", "inf", "status"],
    ],
)
def test_wrong_arguments_exit_64_with_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 64
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ctl", "list_queue"], 'unknown verb "list_queue"; did you mean "list_queues"'),
        (["ctl", "-q", "add_usr", "x"], 'unknown verb "add_usr"; did you mean "add_user"'),
        (["ctl", "zzz"], 'leveret ctl: unknown verb "zzz" (see leveret ctl --help)'),
        (["ctl", "sync_queue"], '"sync_queue" is a verb of RabbitMQ\'s that Leveret lacks'),
        (["ctl", "help", "list_queue"], 'unknown verb "list_queue"; did you mean "list_queues"'),
        (["statsu"], 'unknown command "statsu"; did you mean "stats" or "status"?'),
        (["store", "look"], 'unknown verb "look"; allowed: stat, verify, salvage, repair, compact'),
        (["serve", "--log-level", "loud"], '--log-level is "loud"; allowed: debug, info, warning'),
        (["ctl", "list_users", "--formatter", "x"], '--formatter is "x"; allowed: table, json'),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    err = capsys.readouterr().err
    assert (caught.value.code, err.count("\n")) == (64, 1)
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["help"], "usage: leveret "),
        (["help", "serve"], "usage: leveret serve "),
        (["ctl", "help"], "usage: leveret ctl "),
        (["ctl", "-q", "help"], "usage: leveret ctl "),
        (["ctl", "--data", "d", "help", "add_user"], "usage: leveret ctl add_user "),
        (["help", "ctl", "add_user"], "usage: leveret ctl add_user "),
    ],
)
def test_help_is_a_word_too(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


def test_help_may_be_the_name_of_something(run: Any, admin: Any) -> None:
    assert run("ctl", "-q", "add_vhost", "help")[0] == 0
    assert admin.asked[0][1]["name"] == "help"


HOST = NODE.partition("@")[2]


@pytest.mark.parametrize("node", ["rabbit", f"rabbit@{HOST}", "rabbit@localhost", NODE])
def test_the_node_of_the_data_directory_may_be_named(run: Any, node: str) -> None:
    assert run("ctl", "-n", node, "-s", "list_queues")[:2] == (0, "lev.a\t2\nlev.b\t0\n")
    assert run("ctl", "-s", "list_queues", f"--node={node}")[:2] == (0, "lev.a\t2\nlev.b\t0\n")


@pytest.mark.parametrize("node", ["rabbit@elsewhere", f"other@{HOST}", "rabbit2"])
def test_another_node_is_not_mistaken_for_this_one(
    run: Any, serving: Path, admin: Any, node: str
) -> None:
    code, out, err = run("ctl", "-n", node, "list_queues")

    assert (code, out, admin.asked) == (69, "", [])
    assert err == (
        f'leveret: "{node}" is not the node of {serving}, which is {NODE}: a data directory chooses the node,'
        " with --data DIR or LEVERET_DATA, on the node's machine\n"
    )


def test_a_node_of_a_cluster_is_named_by_its_own_name(run: Any, serving: Path) -> None:
    (serving / "cluster").write_text("burrow hare\n")

    assert run("ctl", "-n", "hare", "-s", "list_queues")[0] == 0
    assert run("ctl", "-n", "doe", "-s", "list_queues")[0] == 69


def test_a_configuration_is_checked_without_a_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rabbitmq.conf"
    file.write_text("net_ticktime = 60\nheartbeat = soon\n\nchanel_max = 3\n")

    assert main(["config", "check", str(file)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f'error: {file}:2: heartbeat is "soon"; allowed: an integer',
        f'error: {file}:4: unknown key "chanel_max"; did you mean "channel_max"?',
        f"warning: {file}:1: net_ticktime has no effect: a node is down when its lease in etcd ends (cluster.lease_s)",
        f"{file} cannot be used; errors: 2, warnings: 1",
    ]
    assert main(["config", "check", str(tmp_path / "none.toml")]) == 1
    assert "cannot read" in capsys.readouterr().out
    file.write_text("heartbeat = 60")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file} can be used; errors: 0, warnings: 0\n"


def test_each_error_of_a_configuration_is_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[amqp]\nheartbeat = 1\nframe_max = 5\n")

    assert main(["serve", "--config", str(file)]) == 78
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(" ")[0] for line in lines] == [
        f"{file}:2:",
        f"{file}:3:",
    ]


def test_an_unknown_column_exits_64(run: Any) -> None:
    code, _, err = run("ctl", "list_queues", "name", "nonsense")

    assert code == 64
    assert err == "Error (argument validation): Info key(s) nonsense are not supported\n"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"leveret {leveret.__version__}\n"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ([], "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\nname\tmessages\nlev.a\t2\nlev.b\t0\n"),
        (["-q"], "name\tmessages\nlev.a\t2\nlev.b\t0\n"),
        (["-s"], "lev.a\t2\nlev.b\t0\n"),
        (["-q", "--no-table-headers"], "lev.a\t2\nlev.b\t0\n"),
        (["--formatter", "csv"], '"name","messages"\n"lev.a","2"\n"lev.b","0"\n'),
        (["--formatter", "json"], '[\n{"name":"lev.a","messages":2}\n,{"name":"lev.b","messages":0}\n]\n'),
        (["-q", "messages", "name", "policy"], "messages\tname\tpolicy\n2\tlev.a\t\n0\tlev.b\t\n"),
        (["-q", "name,durable"], "name\tdurable\nlev.a\ttrue\nlev.b\tfalse\n"),
        (["-s", "arguments"], '[{"x-message-ttl",60000},{"x-max-priority",5},{"x-l",[1,"a",true]},{"x-t",[{"k","v\\""}]},{"x-v",undefined}]\n[]\n'),
    ],
)  # fmt: skip
def test_queues_are_listed_as_rabbitmqctl_lists_them(
    run: Any, options: list[str], printed: str
) -> None:
    assert run("ctl", "list_queues", *options) == (0, printed, "")


def test_options_may_stand_before_the_verb(run: Any) -> None:
    assert run("ctl", "-s", "list_queues")[1] == "lev.a\t2\nlev.b\t0\n"


def test_a_quorum_queue_has_one_replica(run: Any, admin: Any) -> None:
    admin.queues[0] |= {"type": "quorum", "state": "running"}

    columns = ("name", "leader", "members", "online")
    assert run("ctl", "-s", "list_queues", *columns)[1] == (
        f"lev.a\t{NODE}\t[{NODE}]\t[{NODE}]\nlev.b\t\t\t\n"
    )
    assert run("ctl", "list_queues", *columns, "--formatter", "json")[1] == (
        f'[\n{{"name":"lev.a","leader":"{NODE}","members":["{NODE}"],"online":["{NODE}"]}}'
        '\n,{"name":"lev.b","leader":"","members":"","online":""}\n]\n'
    )


def test_the_vhost_of_a_list_is_passed_on(run: Any, admin: Any) -> None:
    run("ctl", "list_queues", "-p", "/v", "name")

    assert admin.asked == [("list_queues", {"vhost": "/v", "local": False})]


def test_tags_are_listed_as_rabbitmqctl_lists_them(run: Any) -> None:
    assert run("ctl", "-q", "list_users")[1] == "user\ttags\nguest\t[administrator]\n"
    assert run("ctl", "list_users", "--formatter", "json")[1] == (
        '[\n{"user":"guest","tags":["administrator"]}\n]\n'
    )


def test_an_empty_list_prints_what_rabbitmqctl_prints(run: Any, admin: Any) -> None:
    admin.users.clear()

    assert run("ctl", "-q", "list_users")[1] == "\n"
    assert run("ctl", "list_users", "--formatter", "json")[1] == "[]\n"
    assert run("ctl", "-q", "list_channels")[1] == ""
    assert run("ctl", "list_channels", "--formatter", "json")[1] == "[\n]\n"


def test_the_protocol_of_a_connection_is_a_tuple_in_tables(run: Any) -> None:
    assert run("ctl", "-s", "list_connections", "protocol", "ssl")[1] == "{0,9,1}\tfalse\n"


def test_a_pretty_table_has_every_cell(run: Any) -> None:
    printed = run("ctl", "list_queues", "-q", "--formatter", "pretty_table")[1]

    for word in ("name", "messages", "lev.a", "lev.b"):
        assert word in printed


def test_a_password_may_come_from_standard_input(
    run: Any, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))

    assert run("ctl", "-q", "add_user", "hare")[0] == 0
    assert admin.asked == [("add_user", {"name": "hare", "password": "secret"})]


def test_no_password_at_all_is_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    code, _, err = run("ctl", "-q", "add_user", "hare")

    assert (code, err) == (65, "Error:\nPassword is not provided via argument or stdin\n")


def test_closing_connections_says_how_many(run: Any) -> None:
    assert run("ctl", "-q", "close_all_connections", "bye")[1] == "Closed 7 connections\n"


def test_definitions_are_printed_and_nothing_else(run: Any) -> None:
    assert json.loads(run("ctl", "export_definitions", "-")[1]) == {"users": [], "größe": 1}


def test_a_definitions_file_is_private(run: Any, tmp_path: Path) -> None:
    target = tmp_path / "definitions.json"

    assert run("ctl", "export_definitions", str(target))[0] == 0
    assert json.loads(target.read_text()) == {"users": [], "größe": 1}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_definitions_are_imported_from_a_file_or_standard_input(
    run: Any, admin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.json").write_text('{"users": []}')
    monkeypatch.setattr("sys.stdin", io.StringIO('{"vhosts": []}'))

    assert run("ctl", "import_definitions", str(tmp_path / "d.json"))[0] == 0
    code, out, err = run("ctl", "import_definitions")
    assert (code, err) == (0, "")
    assert out == (
        "Importing definitions in JSON from standard input ...\n"
        "Successfully imported the definitions.\n"
    )
    assert [arguments["document"] for _, arguments in admin.asked] == [
        {"users": []},
        {"vhosts": []},
    ]


@pytest.mark.parametrize("verb", ["set_policy", "set_operator_policy"])
def test_keys_without_effect_are_told_on_stderr(verb: str, run: Any, admin: Any) -> None:
    admin.notices += ["policy 'p\x1b': overflow without effect so far"]

    code, out, err = run("ctl", "-q", verb, "p", "", '{"overflow":"drop-head"}')

    assert (code, out) == (0, "")
    assert err == "Warning: policy 'p\\x1b': overflow without effect so far\n"


def test_what_an_import_leaves_out_is_told_on_stderr(run: Any, admin: Any, tmp_path: Path) -> None:
    admin.notices += ["binding a", "binding b"]
    (tmp_path / "d.json").write_text("{}")

    assert run("ctl", "-q", "import_definitions", str(tmp_path / "d.json")) == (
        0,
        "",
        "Warning: binding a\nWarning: binding b\n",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "Bad argument: File {} does not exist"),
        ("x", "Failed to deserialise input (format: JSON)"),
        ("[]", "Failed to deserialise input (format: JSON) (error: not an object)"),
        (b"\xff", "cannot read {}"),
        (
            '{"parameters": [{"value": NaN}]}',
            "Failed to deserialise input (format: JSON) (error: NaN is not JSON)",
        ),
        (
            '{"queues": [{"arguments": {"x": 1e400}}]}',
            "Failed to deserialise input (format: JSON) (error: 1e400 is too large a number)",
        ),
        (
            '{"queues": [{"name": "\\ud800"}]}',
            "Failed to deserialise input (format: JSON) (error: '\\ud800' is half a character)",
        ),
    ],
)
def test_a_definitions_file_that_is_none_is_refused(
    run: Any, tmp_path: Path, content: str | bytes | None, said: str
) -> None:
    path = tmp_path / "d.json"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    code, _, err = run("ctl", "-q", "import_definitions", str(path))

    assert code == 65
    assert err.startswith("Error:\n" + said.format(path))


def test_definitions_on_standard_input_that_are_no_utf_8_are_refused(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.TextIOWrapper(io.BytesIO(b'{"vhosts": [{"name": "\xff"}]}'))
    monkeypatch.setattr("sys.stdin", text)

    code, _, err = run("ctl", "-q", "import_definitions")

    assert code == 65
    assert err.startswith("Error:\ncannot read standard input: ")


def test_an_export_that_cannot_be_written_is_refused(run: Any, tmp_path: Path) -> None:
    code, _, err = run("ctl", "-q", "export_definitions", str(tmp_path))

    assert (code, err) == (65, f"Error:\ncannot write {tmp_path}: Is a directory\n")


def test_status_is_a_page_of_counts(run: Any) -> None:
    code, out, _ = run("status")

    assert code == 0
    assert out.splitlines() == [
        "Leveret 0.1.0, kernel py, loop uvloop, path sources, latency balanced, process 4711",
        "up 1 d 2 h 3 min 4 s, node 3ad58dbc-0e9c-4d6f-9a57-0b6c8f6c9f7a",
        "data /d",
        "listening on 127.0.0.1:5672, [::1]:5672",
        "",
        "vhosts       1",
        "connections  2",
        "channels     3",
        "consumers    4",
        "queues       1, messages 5 ready 6 unacknowledged",
        "actors       50",
        "memory       123.4 MB used, limit 9500.0 MB",
        "             queues 12.0 MB, arguments 0.5 MB, routes and transactions 0.3 MB",
        "             received in part 1.5 MB, not read by clients 0.2 MB",
        "disk         unknown free, limit 50.0 GB",
        "descriptors  123 of 20000, sockets 2 of 19840",
        "alarms       disk",
        "down         or\\nders for 1 min 1 s, tried 61 times, next try in 0.5 s: No space left on device",
        "",
        "store of /",
        "  damaged    journal: records 5 to 8 are missing at its end",
        "  damaged    2 messages lost",
        "  messages   7, lost 1, read back 5",
        "  segments   2 with 21.0 MB: 9.0 MB live, 12.0 MB garbage",
        "  archive    150.0 MB of settled messages in 3 segments, for 2 queues; 0.0 MB given up for a short disk",
        "  collector  2 merges, 1.0 MB copied, 4 segments with 40.0 MB removed",
        "  journal    12.3 MB, 3 rows to index, last checkpoint 4 s ago",
        "  syncs      8, mean 2.1 ms, longest 30.5 ms",
        "  transients 2 paged out in 1 segments with 30.0 GB",
        "",
        "ready\tunacknowledged\tconsumers\tin RAM\tpaged out\tpersistent"
        "\tq4\tq3\tdelta\tq2\tq1\tqueue",
        "5\t6\t4\t9\t2\t7\t1\t2\t0\t0\t2\ta\\nb in /",
        "1\t0\t0\t1\t0\t0\t-\t-\t-\t-\t-\tm in /",
    ]


def test_status_is_one_json_object(run: Any) -> None:
    code, out, _ = run("status", "--json")

    assert code == 0
    assert out.count("\n") == 1
    assert json.loads(out)["queues"]["messages_ready"] == 5


def test_the_tree_is_indented(run: Any) -> None:
    assert run("tree")[1] == (
        "leveret  supervisor running restarts=0\n"
        "  listener  worker running restarts=2, the last 1 min 11 s ago\n"
    )
    assert [json.loads(line)["name"] for line in run("tree", "--json")[1].splitlines()] == [
        "leveret",
        "listener",
    ]
