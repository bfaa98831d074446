"""The arguments of ``leveret gm``; the code of the command is loaded when it is chosen."""

from __future__ import annotations

import argparse
from typing import Any

from leveret.server.cli import etcd_arguments


def add_parser(commands: Any) -> None:
    """Add the command ``gm``."""
    about = "groups of guaranteed multicast and their members, as recorded in etcd"
    parser = commands.add_parser("gm", help=about, description=f"Show {about}.")
    parser.add_argument("name", nargs="*", help="of a group (all)")
    parser.add_argument(
        "--forget",
        action="store_true",
        help="delete the records of the named groups, and show them; members that still run end",
    )
    etcd_arguments.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per group")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from leveret.server.cli import gm_command as command  # noqa: PLC0415 - not needed by other commands

    return command.run(options)
