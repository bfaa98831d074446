"""The command ``leveret``: serve, config, status, tree, ctl, store, snapshot, gm, metadata, perf, jobs over messages.

Exit codes are sysexits': 64 wrong arguments, 65 refused by the broker (by some verbs 64, 67, 69 or 70, as by
rabbitmqctl), 69 no broker, a port in use, or a health check that failed, 70 the broker failed, 71 no thread, descriptor
or memory for its start, 75 not in time, 78 configuration or data directory. A failure is one line on stderr; a
configuration file has one line for each error. A command ends when its reader closes stdout (``leveret tree | head
-1``).
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import leveret
from leveret.core.addresses import FORMS, parse_address
from leveret.core.batching import POLICIES
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import LOG_LEVELS
from leveret.core.printable import printable
from leveret.management.errors import RefusedError
from leveret.server import control_client as control
from leveret.server.cli import ctl, jobs
from leveret.server.cli import gm_arguments as gm
from leveret.server.cli import metadata_arguments as metadata
from leveret.server.cli import snapshot_arguments as snapshot
from leveret.server.cli.actions import Ask, CheckFailedError, TimedOutError, UsageError
from leveret.server.cli.commands import NODE
from leveret.server.config import files as conf_file
from leveret.server.config.config import DATA_DEFAULT, default_data_dir
from leveret.server.config.keys import one_or_more
from leveret.server.control_client import seconds
from leveret.server.output import formats
from leveret.server.output.terminal import (
    OutputClosedError,
    OutputFailedError,
    drop_output,
    enter_utf8_mode,
    flush_output,
    show,
    use_utf8,
)
from leveret.server.process import cluster_node
from leveret.server.store_tools import command as store_tool

FAILURES: Final[dict[type[Exception], tuple[int, str]]] = {
    CheckFailedError: (os.EX_UNAVAILABLE, "{}"),
    TimedOutError: (os.EX_TEMPFAIL, "Error: {}"),
    UsageError: (os.EX_USAGE, "Error (argument validation): {}"),
    RefusedError: (os.EX_DATAERR, "Error:\n{}"),
    control.NoBrokerError: (os.EX_UNAVAILABLE, "leveret: {}"),
    control.ControlFailedError: (os.EX_SOFTWARE, "leveret: {}"),
    ConfigError: (os.EX_CONFIG, "leveret: {}"),
}


EX_INVALID: Final = 1  # of ``config check``
CHOICES_SHOWN: Final = 12  # ``ctl`` has ninety verbs


class Parser(argparse.ArgumentParser):
    """argparse with one line per error and sysexits' code."""

    lacking: Collection[str] = ()
    """Names of RabbitMQ that Leveret does not have."""

    def error(self, message: str) -> NoReturn:
        self.exit(os.EX_USAGE, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(each) for each in action.choices]
        if action.option_strings:
            self.error(f'{action.option_strings[-1]} is "{value}"; allowed: {", ".join(names)}')
        what = str(action.metavar or action.dest).lower()
        if value in self.lacking:
            self.error(f'"{value}" is a {what} of RabbitMQ\'s that Leveret lacks')
        near = difflib.get_close_matches(str(value), names, 2, 0.7)
        hint = ""
        if near:
            hint = "; did you mean " + " or ".join(f'"{name}"' for name in near) + "?"
        elif len(names) <= CHOICES_SHOWN:
            hint = f"; allowed: {', '.join(names)}"
        self.error(f'unknown {what} "{value}"{hint}')


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default the process's; return the exit code."""
    if arguments is None:
        enter_utf8_mode()
    use_utf8()
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = 0
    try:
        try:
            code = _run(ctl.with_help(given))
        finally:
            flush_output()
    except OutputClosedError:
        drop_output()
    except OutputFailedError as error:
        drop_output()
        show(f"leveret: {error}", file=sys.stderr)
        code = os.EX_IOERR
    except KeyboardInterrupt:
        code = 130
    return code


def _run(given: list[str]) -> int:
    if given[:1] == ["perf"]:
        from leveret.server.perf.command import main as perf  # noqa: PLC0415 - not needed to serve

        return int(perf(given[1:]))
    if given and given[0] in jobs.ABOUT:
        return jobs.run(Parser(prog=f"leveret {given[0]}"), given[0], given[1:])
    options = parser(given).parse_args(given)
    try:
        return int(options.run(options))
    except tuple(FAILURES) as error:
        code, words = next(FAILURES[kind] for kind in FAILURES if isinstance(error, kind))
        if isinstance(error, RefusedError) and error.is_bare:
            words = "{}"
        text = words.format(error)
        if isinstance(error, ConfigError):
            text = text.replace("\n", "\nleveret: ")
        if text:
            show(text, file=sys.stderr)
        return error.exit_code if isinstance(error, RefusedError) else code


def parser(given: Sequence[str] = ()) -> Parser:
    """Return the parser of all commands but ``perf``, which has PerfTest's options, and the jobs.

    Args:
        given: the arguments; if they name a verb of ``ctl``, only this verb is added.
    """
    top = Parser(prog="leveret", description="AMQP 0-9-1 message broker")
    top.add_argument("--version", action="version", version=f"leveret {leveret.__version__}")
    commands = top.add_subparsers(dest="command_name", metavar="COMMAND", required=True)
    _add_serve(commands)
    _add_config(commands)
    where = _where()
    status = commands.add_parser("status", help="what the broker does", parents=[where])
    status.add_argument("--json", action="store_true", help="one JSON object")
    status.set_defaults(run=_status)
    tree = commands.add_parser("tree", help="the supervision tree", parents=[where])
    tree.add_argument("--json", action="store_true", help="one JSON object per actor")
    tree.set_defaults(run=_tree)
    common = _ctl_options(where)
    verbs = commands.add_parser("ctl", help="administration as with rabbitmqctl", parents=[common])
    verbs.lacking = ctl.LACKING
    ctl.add_parsers(verbs, common, given)
    verbs.set_defaults(run=_ctl)
    snapshot.add_parser(commands)
    store_tool.add_parser(commands)
    gm.add_parser(commands)
    metadata.add_parser(commands)
    jobs.add_parsers(commands)
    commands.add_parser("perf", help="load generator in the shape of PerfTest", add_help=False)
    return top


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run a broker")
    serve.add_argument(
        "--listen", action="append", metavar="ADDRESS", help=f"{FORMS}; may be repeated"
    )
    serve.add_argument("--data", type=Path, metavar="DIR", help=f"data directory ({DATA_DEFAULT})")
    serve.add_argument("--config", type=Path, metavar="FILE", help="leveret.toml or rabbitmq.conf")
    serve.add_argument(
        "--log-level", metavar="LEVEL", choices=LOG_LEVELS, help=", ".join(LOG_LEVELS)
    )
    serve.add_argument(
        "--latency", choices=POLICIES, help="whether a few messages wait for others (balanced)"
    )
    cluster = serve.add_argument_group("cluster", "several nodes as one broker (docs/cluster.md)")
    cluster.add_argument("--cluster", metavar="NAME", help="be a node of this cluster")
    cluster.add_argument("--etcd", metavar="URLS", help="servers of etcd, separated by commas")
    cluster.add_argument("--node", metavar="NAME", help="of this node, one of its own")
    cluster.add_argument(
        "--cluster-listen", metavar="HOST:PORT", help="where other nodes connect to this one"
    )
    cluster.add_argument(
        "--cluster-advertise",
        metavar="HOST:PORT",
        help="their address for it, if that is another one",
    )
    cluster.add_argument(
        "--cluster-secret-file", type=Path, metavar="FILE", help="(LEVERET_CLUSTER_SECRET)"
    )
    for what, text in (
        ("cert", "certificate of this node for links with others"),
        ("key", "its key, where it is in another file"),
        ("ca", "authorities of the other nodes' certificates"),
    ):
        cluster.add_argument(f"--cluster-tls-{what}", type=Path, metavar="FILE", help=text)
    serve.set_defaults(run=_serve)


def _add_config(commands: Any) -> None:
    about = "check a configuration file"
    config = commands.add_parser("config", help=about, description=about)
    verbs = config.add_subparsers(dest="verb", metavar="VERB", required=True)
    about = "print all errors of a leveret.toml or rabbitmq.conf, and what has no effect"
    check = verbs.add_parser("check", help=about, description=about)
    check.add_argument("file", type=Path, metavar="FILE")
    check.set_defaults(run=_check_config)


def _where() -> Parser:
    where = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    where.add_argument(
        "--data", type=Path, metavar="DIR", help=f"the broker's data directory ({DATA_DEFAULT})"
    )
    where.add_argument("-t", "--timeout", type=seconds, metavar="S", help="wait at most")
    return where


def _ctl_options(where: Parser) -> Parser:
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS, parents=[where])
    common.add_argument("-q", "--quiet", action="store_true", help="no banner")
    common.add_argument("-s", "--silent", action="store_true", help="no banner, no headers")
    common.add_argument("--no-table-headers", action="store_true")
    common.add_argument("--formatter", choices=formats.FORMATTERS)
    common.add_argument(
        "-n", "--node", metavar="NODE", help="checked only: the data directory chooses the node"
    )
    return common


_DEFAULTS: Final = {
    "timeout": 60.0,
    "quiet": False,
    "silent": False,
    "no_table_headers": False,
    "formatter": "table",
    "node": None,
}


_CLUSTER_FIELDS: Final = {
    "cluster": "cluster",
    "node": "cluster_node",
    "cluster_listen": "cluster_listen",
    "cluster_advertise": "cluster_advertise",
    "cluster_secret_file": "cluster_secret_file",
    "cluster_tls_cert": "cluster_tls_cert_file",
    "cluster_tls_key": "cluster_tls_key_file",
    "cluster_tls_ca": "cluster_tls_ca_file",
}


def _serve(options: argparse.Namespace) -> int:
    from leveret.server.cli import serve  # noqa: PLC0415 - the broker is not needed to ask one

    given: dict[str, Any] = {}
    if options.listen:
        given["listen"] = tuple(parse_address(text) for text in options.listen)
    if options.data is not None:
        given["data_dir"] = options.data
    if options.log_level is not None:
        given["log_level"] = options.log_level
    if options.latency is not None:
        given["latency"] = options.latency
    if options.etcd is not None:
        given["cluster_etcd"] = one_or_more(options.etcd)
    for option, field in _CLUSTER_FIELDS.items():
        if getattr(options, option) is not None:
            given[field] = getattr(options, option)
    return serve.run(options.config, given)


def _check_config(options: argparse.Namespace) -> int:
    checked = conf_file.check(options.file)
    for kind, texts in (("error", checked.errors), ("warning", checked.warnings)):
        show("".join(f"{kind}: {text}\n" for text in texts), end="")
    verdict = "can be used" if checked.config is not None else "cannot be used"
    counts = f"errors: {len(checked.errors)}, warnings: {len(checked.warnings)}"
    show(f"{options.file} {verdict}; {counts}")
    return 0 if checked.config is not None else EX_INVALID


def _status(options: argparse.Namespace) -> int:
    found = _asking(options)("status", {})
    show(formats.json_line(found) if options.json else formats.status(found), end="")
    return 0


def _tree(options: argparse.Namespace) -> int:
    found = _asking(options)("tree", {})
    show("".join(map(formats.json_line, found)) if options.json else formats.tree(found), end="")
    return 0


def _ctl(options: argparse.Namespace) -> int:
    return ctl.run(options, _asking(options))


def _asking(options: argparse.Namespace) -> Ask:
    """Return the function that asks the broker; missing options get their defaults."""
    command = getattr(options, "command", None)
    own = {} if command is None else {"timeout": command.timeout_s}
    for name, value in ({"data": default_data_dir()} | _DEFAULTS | own).items():
        if not hasattr(options, name):
            setattr(options, name, value)
    options.own_node = cluster_node(options.data) or NODE
    if options.node is not None:
        ctl.check_node(options.node, options.own_node, options.data)

    def ask(verb: str, arguments: dict[str, Any]) -> Any:
        return control.ask(options.data, verb, arguments, options.timeout, _warn)

    return ask


def _warn(text: str) -> None:
    show(f"Warning: {text}", file=sys.stderr)
