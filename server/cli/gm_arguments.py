"""The arguments of ``leveret gm``; the code of the command is loaded when it is chosen."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

TIMEOUT_S: Final = 5.0


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
    parser.add_argument(
        "--endpoints",
        required=True,
        metavar="URLS",
        help="http://HOST:PORT or https://HOST:PORT, separated by commas",
    )
    parser.add_argument(
        "--prefix", default="/leveret", metavar="PREFIX", help="of the keys (/leveret)"
    )
    parser.add_argument("--user", default="", metavar="NAME", help="to log in to etcd as")
    parser.add_argument(
        "--password-file", type=Path, metavar="FILE", help="with the user's password"
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="authorities of etcd (the system's)"
    )
    parser.add_argument("--cert", type=Path, metavar="FILE", help="certificate to show to etcd")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key")
    parser.add_argument(
        "-t",
        "--timeout",
        type=float,
        metavar="S",
        default=TIMEOUT_S,
        help="wait at most for each endpoint (5)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per group")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from leveret.server.cli import gm_command as command  # noqa: PLC0415 - not needed by other commands

    return command.run(options)
