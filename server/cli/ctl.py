"""``leveret ctl``: rabbitmqctl's verbs, with its arguments, texts and columns.

Every verb is a row of ``COMMANDS``. Refusals exit with 65 and RabbitMQ's text (rabbitmqctl itself uses
65, 67, 69 and 70 for them), wrong arguments with 64.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leveret.core.errors import LeveretError
from leveret.core.printable import printable
from leveret.core.sizes import SizeLimit, parse_size
from leveret.server.definitions.file import read_definitions
from leveret.server.errors import RefusedError
from leveret.server.output import formats
from leveret.server.output.terminal import show

Options: TypeAlias = argparse.Namespace
Ask: TypeAlias = Callable[[str, dict[str, Any]], Any]


class CheckFailedError(LeveretError):
    """A health check has found something; the text names it."""


class UsageError(LeveretError):
    """The arguments do not fit the verb."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


QUEUE_COLUMNS: Final = _words("""arguments auto_delete backing_queue_status consumer_capacity consumer_utilisation consumers disk_reads disk_writes
    durable exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp leader
    effective_policy_definition members memory message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready
    message_bytes_unacknowledged messages messages_paged_out messages_persistent messages_ram messages_ready
    messages_ready_ram messages_unacknowledged messages_unacknowledged_ram name online
    operator_policy owner_pid pid policy single_active_consumer_pid single_active_consumer_tag slave_pids
    state synchronised_slave_pids type""")
CONNECTION_COLUMNS: Final = _words("""auth_mechanism channel_max channels client_properties connected_at frame_max host name
    peer_cert_issuer peer_cert_subject peer_cert_validity peer_host peer_port pid port protocol
    recv_cnt recv_oct send_cnt send_oct send_pend ssl ssl_cipher ssl_hash ssl_key_exchange
    ssl_protocol state timeout user vhost""")
EXCHANGE_COLUMNS: Final = _words("arguments auto_delete durable internal name policy type")
BINDINGS: Final = "source_name source_kind destination_name destination_kind routing_key arguments"
POLICY_COLUMNS: Final = "vhost name pattern apply-to definition priority"
VHOST_COLUMNS: Final = _words("cluster_state default_queue_type description name tags tracing")


@dataclass(frozen=True, slots=True)
class Command:
    """One verb.

    Attributes:
        verb: also the verb of the control socket, unless ``_SPECIAL`` has a function for it.
        summary: one line for the help page.
        usage: positional arguments, ``?`` and ``*`` at the end as argparse's nargs; ``-p`` for the vhost.
        columns: that may be requested; empty: the verb takes no columns.
        shown: the default columns; empty: the verb returns no rows.
        after: printed at the end, unless quiet.
        options: further ones with their types and defaults, by name.
    """

    verb: str
    summary: str
    usage: str = ""
    columns: frozenset[str] = frozenset()
    shown: str = ""
    after: str = ""
    options: tuple[tuple[str, type, Any], ...] = ()


_SETTING_POLICY: Final = (
    'Setting {} "{{name}}" for pattern "{{pattern}}" to "{{definition}}" '
    'with priority "{{priority}}" for vhost "{{vhost}}" ...'
)
_POLICY_OPTIONS: Final = (("priority", int, 0), ("apply-to", str, "all"))

COMMANDS: Final = (
    Command(
        "add_user",
        "make a user without permissions",
        "name password?",
        after="Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'leveret ctl set_permissions --help' to learn more.",
    ),
    Command("change_password", "set a user's password", "name password?"),
    Command("delete_user", "delete a user and its permissions", "name"),
    Command("set_user_tags", "replace a user's tags", "name tags*"),
    Command("authenticate_user", "check a password", "name password?", after="Success"),
    Command("list_users", "users and tags", shown="user tags"),
    Command(
        "set_permissions", "give a user its patterns on a vhost", "-p user configure write read"
    ),
    Command("clear_permissions", "take a user's permissions on a vhost away", "-p user"),
    Command("list_permissions", "permissions on a vhost", "-p", shown="user configure write read"),
    Command(
        "list_user_permissions", "permissions of a user", "user", shown="vhost configure write read"
    ),
    Command("add_vhost", "make a vhost", "name"),
    Command("delete_vhost", "delete a vhost with all that is in it", "name"),
    Command("list_vhosts", "vhosts", columns=VHOST_COLUMNS, shown="name"),
    Command("check_virtual_hosts", "exit with 69 unless every vhost serves"),
    Command("restart_vhost", "start a vhost that is down", "-p"),
    Command(
        "trace_on",
        "publish copies of the messages of a vhost, or of a share of them, to amq.rabbitmq.trace",
        "-p",
        options=(("rate", float, 1.0),),
    ),
    Command("trace_off", "publish no more copies of messages", "-p"),
    Command("list_queues", "queues of a vhost", "-p", QUEUE_COLUMNS, shown="name messages"),
    Command("list_exchanges", "exchanges of a vhost", "-p", EXCHANGE_COLUMNS, shown="name type"),
    Command("list_bindings", "bindings of a vhost", "-p", _words(BINDINGS), shown=BINDINGS),
    Command(
        "set_policy",
        "make or replace a policy; DEFINITION is JSON",
        "-p name pattern definition",
        options=_POLICY_OPTIONS,
    ),
    Command("clear_policy", "take a policy away", "-p name"),
    Command("list_policies", "policies of a vhost", "-p", shown=POLICY_COLUMNS),
    Command(
        "set_operator_policy",
        "make or replace an operator policy, a ceiling for what policies may set",
        "-p name pattern definition",
        options=_POLICY_OPTIONS,
    ),
    Command("clear_operator_policy", "take an operator policy away", "-p name"),
    Command("list_operator_policies", "operator policies of a vhost", "-p", shown=POLICY_COLUMNS),
    Command(
        "list_connections",
        "connections",
        columns=CONNECTION_COLUMNS,
        shown="user peer_host peer_port state",
    ),
    Command(
        "close_connection", "close one connection (pid as list_connections shows it)", "pid reason"
    ),
    Command(
        "close_all_connections",
        "close the connections of a vhost, or with --global all",
        "-p reason",
    ),
    Command(
        "set_vm_memory_high_watermark",
        "limit memory: a share of the RAM, or absolute and a size; until the node ends",
        "threshold*",
    ),
    Command(
        "set_disk_free_limit",
        "limit free disk space: a size, or mem_relative and a multiple; until the node ends",
        "threshold*",
    ),
    Command("export_definitions", "write the definitions as JSON to a file or -", "file"),
    Command(
        "import_definitions",
        "read definitions from a JSON file or -",
        "file?",
        after="Successfully imported the definitions.",
    ),
)

BANNERS: Final = {
    "add_user": 'Adding user "{name}" ...',
    "change_password": 'Changing password for user "{name}" ...',
    "delete_user": 'Deleting user "{name}" ...',
    "set_user_tags": 'Setting tags for user "{name}" to [{tags}] ...',
    "authenticate_user": 'Authenticating user "{name}" ...',
    "list_users": "Listing users ...",
    "set_permissions": 'Setting permissions for user "{user}" in vhost "{vhost}" ...',
    "clear_permissions": 'Clearing permissions for user "{user}" in vhost "{vhost}" ...',
    "list_permissions": 'Listing permissions for vhost "{vhost}" ...',
    "list_user_permissions": 'Listing permissions for user "{user}" ...',
    "add_vhost": 'Adding vhost "{name}" ...',
    "delete_vhost": 'Deleting vhost "{name}" ...',
    "list_vhosts": "Listing vhosts ...",
    "check_virtual_hosts": "Checking if all vhosts are running on node ...",
    "restart_vhost": "Trying to restart vhost '{vhost}' ...",
    "trace_on": 'Starting tracing for vhost "{vhost}" ...',
    "trace_off": 'Stopping tracing for vhost "{vhost}" ...',
    "list_queues": "Timeout: {timeout:.1f} seconds ...\nListing queues for vhost {vhost} ...",
    "list_exchanges": "Listing exchanges for vhost {vhost} ...",
    "list_bindings": "Listing bindings for vhost {vhost}...",
    "set_policy": _SETTING_POLICY.format("policy"),
    "clear_policy": 'Clearing policy "{name}" on vhost "{vhost}" ...',
    "list_policies": 'Listing policies for vhost "{vhost}" ...',
    "set_operator_policy": _SETTING_POLICY.format("operator policy override"),
    "clear_operator_policy": 'Clearing operator policy "{name}" on vhost "{vhost}" ...',
    "list_operator_policies": 'Listing operator policy overrides for vhost "{vhost}" ...',
    "list_connections": "Listing connections ...",
    "close_connection": "Closing connection {pid}, reason: {reason}...",
    "close_all_connections": "Closing all connections {scope}, reason: {reason}...",
    "set_vm_memory_high_watermark": "Setting memory threshold to {setting} ...",
    "set_disk_free_limit": "Setting disk free limit to {setting} ...",
    "export_definitions": 'Exporting definitions in JSON to a file at "{file}" ...',
    "import_definitions": "Importing definitions in JSON from {source} ...",
}
"""The line that each verb prints first, unless quiet; filled from the options."""


def add_parsers(parent: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Add the verbs to the parser of ``leveret ctl``."""
    verbs = parent.add_subparsers(dest="verb", metavar="VERB", required=True)
    for command in COMMANDS:
        parser = verbs.add_parser(
            command.verb, help=command.summary, description=command.summary, parents=[common]
        )
        for word in command.usage.split():
            if word == "-p":
                parser.add_argument("-p", "--vhost", default="/")
            else:
                nargs = word[-1] if word[-1] in "?*" else None
                parser.add_argument(word.rstrip("?*"), nargs=nargs)
        if command.columns:
            parser.add_argument("columns", nargs="*", metavar="column")
        for name, kind, default in command.options:
            parser.add_argument(f"--{name}", type=kind, default=default)
        if command.verb == "close_all_connections":
            parser.add_argument("--global", dest="everywhere", action="store_true")
        parser.set_defaults(command=command)


def run(options: Options, ask: Ask) -> int:
    """Carry out a verb and print rabbitmqctl's output.

    Raises:
        UsageError: unknown columns.
        RefusedError: the broker refused, or a file cannot be read.
    """
    command: Command = options.command
    columns = _columns(command, getattr(options, "columns", ()))
    if command.verb in _LIMITS:
        options.setting, options.limit = _LIMITS[command.verb](options.threshold)
    quiet = options.quiet or options.silent or options.formatter in formats.MACHINE_READABLE
    if not quiet and not (command.verb == "export_definitions" and options.file == "-"):
        show(_banner(command, options), flush=True)
    answer = _SPECIAL.get(command.verb, _plain)(command, options, ask)
    if columns:
        headers = not (options.silent or options.no_table_headers)
        show(formats.rows(options.formatter, columns, answer, headers), end="")
    elif isinstance(answer, str):
        show(answer)
    if command.after and not quiet:
        show(command.after)
    return 0


def _banner(command: Command, options: Options) -> str:
    words = vars(options) | {"tags": ", ".join(getattr(options, "tags", ()))}
    if command.verb == "close_all_connections":
        words["scope"] = "across all vhosts" if options.everywhere else f"in vhost {options.vhost}"
    if command.verb == "import_definitions":
        from_stdin = options.file in {None, "-"}
        words["source"] = "standard input" if from_stdin else f'a file at "{options.file}"'
    return BANNERS[command.verb].format_map(words)


def _columns(command: Command, asked: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(name for entry in asked for name in entry.split(",") if name)
    if unknown := [name for name in wanted if name not in command.columns]:
        raise UsageError(f"Info key(s) {','.join(unknown)} are not supported")
    return wanted or tuple(command.shown.split())


def _plain(command: Command, options: Options, ask: Ask) -> Any:
    names = [word.rstrip("?*") for word in command.usage.replace("-p", "vhost").split()]
    names += [name.replace("-", "_") for name, _, _ in command.options]
    return ask(command.verb, {name: getattr(options, name) for name in names})


def _with_password(command: Command, options: Options, ask: Ask) -> Any:
    if options.password is None:
        options.password = _password()
    return _plain(command, options, ask)


def _password() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Password: ")
    if not (line := sys.stdin.readline()):
        raise RefusedError("Password is not provided via argument or stdin")
    return line.rstrip("\r\n")


def _set_limit(command: Command, options: Options, ask: Ask) -> None:
    limit: SizeLimit = options.limit
    ask(command.verb, {"size_bytes": limit.size_bytes, "share": limit.share})


def _watermark(words: list[str]) -> tuple[str, SizeLimit]:
    """Parse ``FRACTION`` or ``absolute SIZE``; return the banner's text and the limit.

    Raises:
        UsageError: the arguments have another form.
    """
    value, is_bare = _value(words, "absolute")
    if not is_bare:
        return f"{value} bytes", SizeLimit(_size(value))
    share = _number(value)
    if not 0.0 <= share <= 1.0:
        raise UsageError("The threshold should be a fraction between 0.0 and 1.0")
    return value, SizeLimit(share=share)


def _disk_limit(words: list[str]) -> tuple[str, SizeLimit]:
    """Parse ``SIZE`` or ``mem_relative MULTIPLE``; return the banner's text and the limit.

    Raises:
        UsageError: the arguments have another form.
    """
    value, is_bare = _value(words, "mem_relative")
    if is_bare:
        return f"{value} bytes", SizeLimit(_size(value))
    share = _number(value)
    if share < 0.0:
        raise UsageError("Bad argument")
    return f"{value} times the total RAM", SizeLimit(share=share)


def _value(words: list[str], kind: str) -> tuple[str, bool]:
    """Return the value, and whether it comes without a keyword."""
    if words and words[0] == kind:
        rest, is_bare = words[1:], False
    else:
        rest, is_bare = words, True
    if len(rest) != 1:
        raise UsageError("too many arguments." if rest else "not enough arguments.")
    return rest[0], is_bare


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError("Bad argument") from None


def _size(value: str) -> int:
    try:
        return parse_size(value)
    except ValueError:
        raise UsageError("Invalid units.") from None


_LIMITS: Final[dict[str, Callable[[list[str]], tuple[str, SizeLimit]]]] = {
    "set_vm_memory_high_watermark": _watermark,
    "set_disk_free_limit": _disk_limit,
}


def _close_all(_command: Command, options: Options, ask: Ask) -> str:
    vhost = None if options.everywhere else options.vhost
    count = ask("close_all_connections", {"vhost": vhost, "reason": options.reason})
    return f"Closed {count} connections"


def _check_vhosts(_command: Command, options: Options, ask: Ask) -> str | None:
    down = ask("check_virtual_hosts", {})
    if down:
        lines = [printable(f"{row['vhost']}: {row['reason']}") for row in down]
        raise CheckFailedError("\n".join(["Some virtual hosts are down:", *lines]))
    return None if options.silent else "All virtual hosts are running"


def _restart_vhost(command: Command, options: Options, ask: Ask) -> str:
    if _plain(command, options, ask):
        return f"Successfully restarted vhost '{options.vhost}'"
    return f"Vhost '{options.vhost}' is already running, or being started"


def _trace(command: Command, options: Options, ask: Ask) -> str:
    _plain(command, options, ask)
    state = "enabled" if command.verb == "trace_on" else "disabled"
    return f"Trace {state} for vhost {options.vhost}"


def _export(_command: Command, options: Options, ask: Ask) -> str | None:
    document = json.dumps(ask("export_definitions", {}), separators=(",", ":"))
    if options.file == "-":
        return document
    try:
        target = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(target, "w", encoding="utf-8") as file:
            file.write(document)
    except OSError as error:
        raise RefusedError(f"cannot write {options.file}: {error.strerror}") from error
    return None


def _import(_command: Command, options: Options, ask: Ask) -> None:
    document = read_definitions(options.file)
    _warn(ask("import_definitions", {"document": document}))


def _set_policy(command: Command, options: Options, ask: Ask) -> None:
    _warn(_plain(command, options, ask))


def _warn(notices: list[str] | None) -> None:
    for notice in notices or ():
        show(f"Warning: {notice}", file=sys.stderr)


_SPECIAL: Final[dict[str, Callable[[Command, Options, Ask], Any]]] = {
    "add_user": _with_password,
    "change_password": _with_password,
    "authenticate_user": _with_password,
    "check_virtual_hosts": _check_vhosts,
    "restart_vhost": _restart_vhost,
    "trace_on": _trace,
    "trace_off": _trace,
    "close_all_connections": _close_all,
    "set_vm_memory_high_watermark": _set_limit,
    "set_disk_free_limit": _set_limit,
    "export_definitions": _export,
    "import_definitions": _import,
    "set_policy": _set_policy,
    "set_operator_policy": _set_policy,
}
