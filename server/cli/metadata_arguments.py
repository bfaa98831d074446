"""The arguments of ``leveret metadata``; the code of the command is loaded when it is chosen."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from leveret.server.cli import etcd_arguments
from leveret.server.config.config import DATA_DEFAULT, default_data_dir


def add_parser(commands: Any) -> None:
    """Add the command ``metadata``."""
    about = "metadata, of a node or in etcd: users, vhosts, exchanges, queues, bindings, policies"
    parser = commands.add_parser("metadata", help=about, description=f"{about.capitalize()}.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="what etcd has; changes nothing")
    etcd_arguments.add_arguments(show)
    show.add_argument("--json", action="store_true", help="one JSON object")
    into = verbs.add_parser(
        "to-etcd",
        help="write the metadata of a data directory into etcd; the directory stays as it is",
    )
    back = verbs.add_parser("from-etcd", help="write the metadata in etcd into a data directory")
    for each in (into, back):
        etcd_arguments.add_arguments(each)
        each.add_argument(
            "--data", type=Path, default=default_data_dir(), metavar="DIR", help=f"({DATA_DEFAULT})"
        )
        each.add_argument(
            "--node", required=True, metavar="NAME", help="of the node with this data directory"
        )
    back.add_argument(
        "--replace",
        action="store_true",
        help="in place of the metadata that is there, of which a copy is kept in metadata.old",
    )
    parser.set_defaults(run=_run)
    accept = verbs.add_parser(
        "accept",
        help="make the metadata in a data directory the node's, as it is; where there is none, begin anew",
    )
    accept.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="(./data)")
    accept.set_defaults(run=_accept)


def _run(options: argparse.Namespace) -> int:
    from leveret.server.cli import metadata_command as command  # noqa: PLC0415 - not needed by other commands

    return command.run(options)


def _accept(options: argparse.Namespace) -> int:
    from leveret.server.cli import metadata_accept  # noqa: PLC0415 - as above

    return metadata_accept.run(options.data)
