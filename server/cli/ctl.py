"""``leveret ctl``: rabbitmqctl's verbs, with its arguments, texts, columns and exit codes.

Every verb is a row of ``commands.COMMANDS``; what is more than one question to the broker is in ``actions.py``,
``checks.py``, ``cluster.py``, ``life.py`` and ``reports.py``, but for the report for support: it runs other verbs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from leveret.server.cli.actions import (
    ACTIONS,
    LIMITS,
    Action,
    Answer,
    Ask,
    CheckFailedError,
    UsageError,
    is_global,
    plain,
)
from leveret.server.cli.checks import CHECKS
from leveret.server.cli.cluster import CLUSTER
from leveret.server.cli.commands import COMMANDS, NODE, Command
from leveret.server.cli.life import LIFE
from leveret.server.cli.reports import REPORTS
from leveret.server.control_client import NoBrokerError
from leveret.server.output import formats
from leveret.server.output.terminal import show

Options = argparse.Namespace

_OF_NODE: Final = (
    "status",
    "cluster_status",
    "environment",
    "list_connections",
    "list_channels",
    "os_env",
)
_OF_VHOST: Final = (
    "list_queues", "list_exchanges", "list_bindings", "list_permissions", "list_policies",
    "list_global_parameters", "list_parameters",
)  # fmt: skip
_BY_VERB: Final = {command.verb: command for command in COMMANDS}


LACKING: Final = frozenset({
    "autocomplete", "cancel_sync_queue", "certificates", "change_cluster_node_type",
    "check_if_node_is_mirror_sync_critical", "check_if_node_is_quorum_critical", "cipher_suites",
    "command_line_arguments", "consume_event_stream", "decode", "disable_auth_attempt_source_tracking",
    "discover_peers", "enable_auth_attempt_source_tracking", "enable_feature_flag", "encode", "erlang_cookie_hash",
    "erlang_cookie_sources", "erlang_version", "eval", "eval_file", "exec", "force_boot", "force_gc",
    "hipe_compile", "list_ciphers", "list_feature_flags", "list_hashes", "list_network_interfaces",
    "list_node_auth_attempt_stats", "log_tail_stream", "maybe_stuck", "observer", "quorum_status",
    "reclaim_quorum_memory", "remote_shell", "rename_cluster_node", "reset_node_auth_attempt_metrics",
    "resolve_hostname", "resolver_info", "resume_listeners", "runtime_thread_stats", "schema_info", "stream_status",
    "suspend_listeners", "sync_queue", "tls_versions", "update_cluster_nodes",
})  # fmt: skip
"""Verbs of rabbitmqctl and rabbitmq-diagnostics that Leveret does not have."""


def add_parsers(
    parent: argparse.ArgumentParser, common: argparse.ArgumentParser, given: Iterable[str]
) -> None:
    """Add the verbs to the parser of ``leveret ctl``: the given verb only, or all if none is given.

    A parser for each of the verbs takes longer than most verbs.
    """
    verbs = parent.add_subparsers(dest="verb", metavar="VERB", required=True)
    wanted = next((_BY_VERB[word] for word in given if word in _BY_VERB), None)
    for command in COMMANDS if wanted is None else (wanted,):
        parser = verbs.add_parser(
            command.verb, help=command.summary, description=command.summary, parents=[common]
        )
        _add_arguments(parser, command)
        parser.set_defaults(command=command)


def with_help(given: list[str]) -> list[str]:
    """Replace the word ``help`` with ``--help`` where a command or a verb is expected."""
    for at, word in enumerate(given):
        if word == "help":
            return [*given[:at], *given[at + 1 :], "--help"]
        if given[0] != "ctl" or word in _BY_VERB:
            break
    return given


def check_node(name: str, own: str, data_dir: Path) -> None:
    """Check that a node name, as rabbitmqctl takes it, names the node of the data directory.

    Raises:
        NoBrokerError: it names another node.
    """
    base, _, host = name.partition("@")
    is_here = host.partition(".")[0].lower() in {"", "localhost", NODE.partition("@")[2].lower()}
    if not (is_here and base in {"rabbit", own.partition("@")[0]}):
        raise NoBrokerError(
            f'"{name}" is not the node of {data_dir.absolute()}, which is {own}: a data directory chooses the node, with'
            " --data DIR or LEVERET_DATA, on the node's machine"
        )


def _add_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.has_vhost:
        parser.add_argument("-p", "--vhost", default="/")
    for word in command.usage.split():
        if word != "-p":
            parser.add_argument(word.rstrip("?*"), nargs=word[-1] if word[-1] in "?*" else None)
    if command.columns:
        parser.add_argument("columns", nargs="*", metavar="column")
    for option in command.options:
        flags = [flag for flag in (option.letter, f"--{option.name}") if flag]
        if option.kind is bool:
            parser.add_argument(*flags, dest=option.field, action="store_true")
        else:
            parser.add_argument(*flags, dest=option.field, type=option.kind, default=option.default)


def run(options: Options, ask: Ask) -> int:
    """Carry out a verb and print rabbitmqctl's output.

    Raises:
        UsageError: unknown columns.
        RefusedError: the broker refused, or a file cannot be read.
        CheckFailedError: a health check has found something.
    """
    command: Command = options.command
    columns = _columns(command, getattr(options, "columns", ()))
    quiet = options.quiet or options.silent or options.formatter in formats.MACHINE_READABLE
    prints_only = command.verb == "export_definitions" and options.file == "-"
    action = VERBS.get(command.verb, plain)
    banner = _banner(command, options)
    if banner and not quiet and not prints_only:
        show(banner, flush=True)
    try:
        answer = action(command, options, ask)
    except CheckFailedError as failed:
        failed.show_as(options.formatter, options.silent)
        raise
    if answer == [] and not command.is_streamed:
        show("[]" if options.formatter == "json" else "")
    elif isinstance(answer, list) and columns:
        headers = not (options.silent or options.no_table_headers)
        show(formats.rows(options.formatter, columns, answer, headers), end="")
    else:
        _print(answer, options)
    if command.after and not quiet:
        show(command.after)
    return 0


def _report(_command: Command, options: Options, ask: Ask) -> None:
    """Print the pages and lists of a node one after the other, with all columns."""
    if options.formatter != "table":
        raise UsageError("Only report formatter is supported")
    for command, vhost in _parts(ask("about", {})["vhosts"]):
        show("")
        words: dict[str, Any] = {option.field: option.default for option in command.options}
        words |= {"command": command, "verb": command.verb, "vhost": vhost}
        words["columns"] = list(command.columns)
        run(argparse.Namespace(**vars(options) | words), ask)


def _parts(vhosts: list[str]) -> Iterator[tuple[Command, str]]:
    for verb in _OF_NODE:
        yield _BY_VERB[verb], "/"
    for vhost in vhosts:
        for verb in _OF_VHOST:
            yield _BY_VERB[verb], vhost


VERBS: Final[dict[str, Action]] = {
    **ACTIONS, **CHECKS, **CLUSTER, **LIFE, **REPORTS, "report": _report,
}  # fmt: skip
"""What is more than one question to the broker, by verb."""


def _print(answer: Any, options: Options) -> None:
    """Print an answer that is not a list of rows: a text, or nothing; as JSON an object."""
    found = answer if isinstance(answer, Answer) else Answer(answer)
    if options.formatter == "json":
        if found.value is None:
            message = {"message": found.text}
            found.value = (
                message if found.text is not None else {"node": options.own_node, "result": "ok"}
            )
        show(formats.json_line(found.value), end="")
    elif found.text is not None:
        show(found.text)


def _banner(command: Command, options: Options) -> str:
    words = vars(options) | {"node": options.own_node, "timeout_ms": options.timeout * 1000}
    if "tags" in command.positional:
        words["tags"] = ", ".join(options.tags)
    fill = _BANNER_WORDS.get(command.verb)
    return command.banner.format_map(words | fill(options) if fill is not None else words)


def _scope(options: Options) -> dict[str, Any]:
    everywhere = is_global(options)
    return {"scope": "across all vhosts" if everywhere else f"in vhost {options.vhost}"}


def _source(options: Options) -> dict[str, Any]:
    from_stdin = options.file in {None, "-"}
    return {"source": "standard input" if from_stdin else f'a file at "{options.file}"'}


def _topic_exchange(options: Options) -> dict[str, Any]:
    return {"on": "" if options.exchange is None else f' on "{options.exchange}"'}


def _limit_type(options: Options) -> dict[str, Any]:
    limit = options.limit_type
    what = f'all limits for user "{options.user}" ...'
    if limit != "all":
        what = f'"{limit}" limit for user "{options.user}" ...'
    return {"clearing": f"Clearing {what}"}


def _whose_vhost(options: Options) -> dict[str, Any]:
    return {"whose": "all vhosts" if is_global(options) else f'vhost "{options.vhost}"'}


def _whose_user(options: Options) -> dict[str, Any]:
    return {"whose": "all users" if is_global(options) else f'user "{options.user}"'}


def _conditions(options: Options) -> dict[str, Any]:
    found = ["if queue is empty "] * options.if_empty + ["if queue is unused "] * options.if_unused
    return {"conditions": "and ".join(found)}


def _limit(options: Options) -> dict[str, Any]:
    return {"setting": LIMITS[options.verb](options.threshold)[0]}


_BANNER_WORDS: Final[dict[str, Callable[[Options], dict[str, Any]]]] = {
    "close_all_connections": _scope,
    "import_definitions": _source,
    "clear_topic_permissions": _topic_exchange,
    "clear_user_limits": _limit_type,
    "list_vhost_limits": _whose_vhost,
    "list_user_limits": _whose_user,
    "delete_queue": _conditions,
    "set_vm_memory_high_watermark": _limit,
    "set_disk_free_limit": _limit,
}
"""What banners have besides the options."""


def _columns(command: Command, asked: Iterable[str]) -> tuple[str, ...]:
    wanted = dict.fromkeys(name.strip() for entry in asked for name in entry.split(","))
    wanted.pop("", None)
    if unknown := sorted(name for name in wanted if name not in command.columns):
        raise UsageError(f"Info key(s) {','.join(unknown)} are not supported")
    if command.verb == "list_consumers":  # as rabbitmqctl, which gets whole rows of this list only
        return tuple(name for name in command.columns if name in (wanted or command.shown.split()))
    return tuple(wanted) or tuple(command.shown.split())
