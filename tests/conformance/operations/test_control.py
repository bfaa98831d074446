"""The command line: what its verbs print and how they exit, on Leveret's and on RabbitMQ's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.conftest import Connect
from conformance.raw import Channel
from rigs.nodes import BrokerUnderTest

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(broker: BrokerUnderTest) -> Ask:
    """Run a verb; return exit code, stdout and stderr."""

    quiet = broker.expected(rabbitmq=(), leveret=("-q",))

    def run(*words: str) -> tuple[int, str, str]:
        try:
            return 0, broker.control(*quiet, *words), ""
        except subprocess.CalledProcessError as error:
            return error.returncode, error.stdout, error.stderr

    return run


@pytest.fixture
def user(broker: BrokerUnderTest, name: str) -> Iterator[str]:
    broker.control("add_user", name, name)
    yield name
    broker.control("delete_user", name)


@pytest.fixture
def vhost(broker: BrokerUnderTest, name: str) -> Iterator[str]:
    broker.control("add_vhost", name)
    yield name
    broker.control("delete_vhost", name)


# (words, exit code, stderr); NAME is a name that nobody has.
REFUSED = [
    (["set_topic_permissions", "NAME", "amq.topic", "a", "a"], 67, "Error:\nUser NAME does not exist\n"),
    (["clear_topic_permissions", "NAME"], 67, "Error:\nUser NAME does not exist\n"),
    (["set_topic_permissions", "-p", "NAME", "guest", "t", "a", "a"], 69, "Error:\nVirtual host NAME does not exist\n"),
    (["set_permissions", "NAME", "a", "a", "a"], 67, "Error:\nUser NAME does not exist\n"),
    (["set_permissions", "-p", "NAME", "guest", "a", "a", "a"], 69, "Error:\nVirtual host NAME does not exist\n"),
    (["change_password", "NAME", "x"], 67, 'Error:\nUser "NAME" does not exist\n'),
    (["delete_user", "NAME"], 67, 'Error:\nUser "NAME" does not exist\n'),
    (["set_user_tags", "NAME", "a"], 67, 'Error:\nUser "NAME" does not exist\n'),
    (["add_user", "guest", "x"], 70, 'Error:\nUser "guest" already exists\n'),
    (["authenticate_user", "NAME", "x"], 65, "Error:\nError: failed to authenticate user \"NAME\"\nuser 'NAME' - invalid credentials\n"),
    (["delete_vhost", "NAME"], 65, "Virtual host 'NAME' does not exist\n"),
    (["list_topic_permissions", "-p", "NAME"], 65, "Virtual host 'NAME' does not exist\n"),
    (["list_parameters", "-p", "NAME"], 65, "Virtual host 'NAME' does not exist\n"),
    (["set_vhost_limits", "-p", "NAME", "{}"], 65, "Virtual host 'NAME' does not exist\n"),
    (["set_vhost_limits", '{"max-x":1}'], 69, 'Error:\nValidation failed\n\nUnrecognised terms [{<<"max-x">>,1}] in limits\n\n'),
    (["set_vhost_limits", '{"max-queues":"1"}'], 69, 'Error:\nValidation failed\n\nmax-queues should be a number, actually was <<"1">>\n\n'),
    (["set_user_limits", "guest", '{"max-x":1}'], 69, 'Error:\nUnrecognised terms [{<<"max-x">>,1}] in user-limits\n'),
    (["set_parameter", "nonsense", "NAME", "1"], 69, "Error:\nValidation failed\n\ncomponent nonsense not found\n\n"),
    (["set_parameter", "policy", "NAME", "1"], 69, "Error:\npolicies may not be set using this method\n"),
    (["clear_parameter", "policy", "NAME"], 69, "Error:\npolicies may not be cleared using this method\n"),
    (["clear_parameter", "vhost-limits", "NAME"], 69, "Error:\nParameter does not exist\n"),
    (["clear_global_parameter", "NAME"], 69, "Error:\nParameter does not exist\n"),
    (["set_global_parameter", "NAME", "nonsense"], 69, "Error:\nJSON decoding error. Reason: badarg\n"),
    (["set_user_limits", "NAME", "{}"], 69, 'Error:\n{:no_such_user, "NAME"}\n'),
    (["clear_user_limits", "NAME", "all"], 69, 'Error:\n{:no_such_user, "NAME"}\n'),
    (["list_user_limits", "--user", "NAME"], 69, 'Error:\n{:no_such_user, "NAME"}\n'),
    (["list_user_permissions", "NAME"], 69, 'Error:\n{:no_such_user, "NAME"}\n'),
    (["list_user_topic_permissions", "NAME"], 69, 'Error:\n{:no_such_user, "NAME"}\n'),
    (["set_vhost_tags", "NAME", "a"], 65, 'Error:\nVirtual host "NAME" does not exist\n'),
    (["delete_queue", "NAME"], 64, "Error:\nQueue not found\n"),
    (["purge_queue", "NAME"], 69, "Error:\nnot_found\n"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "text"), REFUSED, ids=lambda each: str(each)[:50])
def test_what_cannot_be_done_is_refused(
    ask: Ask, name: str, words: list[str], code: int, text: str
) -> None:
    words = [word.replace("NAME", name) for word in words]

    assert ask(*words) == (code, "", text.replace("NAME", name))


@pytest.mark.parametrize(
    "verb", ["list_queues", "list_exchanges", "list_bindings", "list_connections", "list_channels", "list_consumers", "list_vhosts"]
)  # fmt: skip
def test_a_column_that_does_not_exist_is_refused(ask: Ask, verb: str) -> None:
    code, _, err = ask(verb, "name,zz", "yy")

    unknown = "name,yy,zz" if verb in {"list_bindings", "list_consumers"} else "yy,zz"
    assert code == 64
    text = f"Error (argument validation): Info key(s) {unknown} are not supported"
    assert err.splitlines()[0] == text


def test_topic_permissions_are_listed(ask: Ask, user: str) -> None:
    ask("set_topic_permissions", user, "t", "^w", "^r")

    assert f"{user}\tt\t^w\t^r\n" in ask("list_topic_permissions")[1]
    assert ask("list_user_topic_permissions", user)[1].endswith("/\tt\t^w\t^r\n")
    ask("clear_topic_permissions", user)
    assert user not in ask("list_topic_permissions")[1]


def test_limits_of_a_user_are_listed(ask: Ask, user: str) -> None:
    assert ask("list_user_limits", "--user", user) == (0, "{}\n", "")
    ask("set_user_limits", user, '{"max-connections":2}')
    ask("set_user_limits", user, '{"max-channels":-1}')

    shown = '{"max-channels":-1,"max-connections":2}'
    assert ask("list_user_limits", "--user", user) == (0, shown + "\n", "")
    assert f"{user}\t{shown}\n" in ask("list_user_limits", "--global")[1]
    ask("clear_user_limits", user, "max-channels")
    assert ask("list_user_limits", "--user", user)[1] == '{"max-connections":2}\n'


def test_limits_of_a_vhost_are_listed_and_are_parameters(ask: Ask, vhost: str) -> None:
    assert ask("list_vhost_limits", "-p", vhost) == (0, "\n", "")
    ask("set_vhost_limits", "-p", vhost, '{"max-queues":2,"max-connections":3}')

    shown = '{"max-connections":3,"max-queues":2}'
    assert ask("list_vhost_limits", "-p", vhost)[1] == shown + "\n"
    assert f"{vhost}\t{shown}\n" in ask("list_vhost_limits", "--global")[1]
    assert ask("list_parameters", "-p", vhost)[1] == (
        f"component\tname\tvalue\nvhost-limits\tlimits\t{shown}\n"
    )
    ask("clear_parameter", "-p", vhost, "vhost-limits", "limits")
    assert ask("list_parameters", "-p", vhost) == (0, "\n", "")
    assert ask("list_parameters", "-p", vhost, "--formatter", "json") == (0, "[]\n", "")
    ask("set_parameter", "-p", vhost, "vhost-limits", "limits", '{"max-queues":5}')
    assert ask("list_vhost_limits", "-p", vhost)[1] == '{"max-queues":5}\n'


def test_global_parameters_are_listed(ask: Ask, name: str) -> None:
    ask("set_global_parameter", name, '{"b":[1,"x"],"a":null}')

    shown = ask("list_global_parameters")[1]
    ask("clear_global_parameter", name)
    assert shown.startswith("name\tvalue\n")
    assert f'{name}\t{{"a":null,"b":[1,"x"]}}\n' in shown
    assert name not in ask("list_global_parameters")[1]


def test_channels_are_listed(ask: Ask, connect: Connect) -> None:
    connection = connect()
    channel = connection.channel(5)
    channel.ok("confirm.select")
    channel.ok("basic.qos", prefetch_count=7)
    channel.ok("basic.qos", prefetch_count=9, global_=True)
    columns = "number user vhost transactional confirm consumer_count prefetch_count global_prefetch_count"

    found = json.loads(ask("list_channels", *columns.split(), "--formatter", "json")[1])

    (row,) = [each for each in found if each["number"] == 5]
    assert row == {
        "number": 5,
        "user": "guest",
        "vhost": "/",
        "transactional": False,
        "confirm": True,
        "consumer_count": 0,
        "prefetch_count": 7,
        "global_prefetch_count": 9,
    }
    default = ask("list_channels")[1].splitlines()[0]
    assert default == "pid\tuser\tconsumer_count\tmessages_unacknowledged"


def test_consumers_are_listed(ask: Ask, channel: Channel, queue: str) -> None:
    channel.ok("basic.qos", prefetch_count=7)
    tag = f"{queue}-c"
    channel.ok("basic.consume", queue=queue, consumer_tag=tag, arguments={"x-priority": 3})
    channel.ok("basic.consume", queue=queue, consumer_tag=f"{tag}2", no_ack=True)
    columns = "queue_name consumer_tag ack_required prefetch_count active activity_status arguments"

    lines = [line.split("\t") for line in ask("list_consumers", *columns.split())[1].splitlines()]

    assert lines[0] == columns.split()
    assert sorted(line for line in lines if line[0] == queue) == [
        [queue, tag, "true", "7", "true", "up", '[{"x-priority",3}]'],
        [queue, f"{tag}2", "false", "7", "true", "up", "[]"],
    ]
    swapped = ask("list_consumers", "consumer_tag", "queue_name")[1].splitlines()
    assert swapped[0] == "queue_name\tconsumer_tag"
    assert f"{queue}\t{tag}" in swapped
    header = ask("list_consumers")[1].splitlines()[0]
    assert header == (
        "queue_name\tchannel_pid\tconsumer_tag\tack_required\tprefetch_count\tactive\targuments"
    )


def test_a_queue_is_purged_and_deleted(ask: Ask, channel: Channel, queue: str) -> None:
    channel.fill(queue, "abc")

    not_empty = (64, "", "Error:\nQueue is not empty\n")
    assert ask("delete_queue", queue, "--if-empty") == not_empty
    assert ask("purge_queue", queue) == (0, "", "")
    channel.fill(queue, "d")
    channel.ok("basic.consume", queue=queue, consumer_tag="c")
    in_use = (64, "", "Error:\nQueue is in use\n")
    assert ask("delete_queue", queue, "--if-unused") == in_use
    channel.ok("basic.cancel", consumer_tag="c")
    assert ask("delete_queue", queue)[::2] == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ["clear_topic_permissions", "guest"],
        ["set_user_limits", "guest", "{}"],
        ["set_vhost_limits", "{}"],
    ],
    ids=lambda words: words[0],
)
def test_a_verb_without_output_says_ok_in_json(ask: Ask, words: list[str]) -> None:
    code, out, _ = ask(*words, "--formatter", "json")

    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert (found["result"], sorted(found)) == ("ok", ["node", "result"])
