"""The arguments of ``leveret snapshot``; the code of the command is loaded when it is chosen."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from leveret.server.config.config import DATA_DEFAULT, default_data_dir
from leveret.server.control_client import seconds

TIMEOUT_S: Final = 3600.0  # the index of a large store is copied meanwhile


def add_parser(commands: Any) -> None:
    """Add the command ``snapshot``."""
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=default_data_dir(),
        help=f"data directory ({DATA_DEFAULT})",
    )
    about = "snapshots of all durable messages and definitions"
    parser = commands.add_parser("snapshot", help=about, description=about)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def add(name: str, about: str) -> Any:
        verb = verbs.add_parser(name, help=about, description=about, parents=[where])
        verb.set_defaults(run=_run)
        return verb

    as_json = {"action": "store_true", "help": "as JSON"}
    create_ = add("create", "make one, of a running broker or of what one has left")
    create_.add_argument("name", nargs="?", help="its name (date and time in UTC)")
    create_.add_argument("--vhost", action="append", default=[], help="may be repeated (all)")
    create_.add_argument("--copy", type=Path, metavar="DIR", help="copy it there, keep none here")
    create_.add_argument("--json", **as_json)
    create_.add_argument(
        "-t",
        "--timeout",
        type=seconds,
        metavar="S",
        default=TIMEOUT_S,
        help="wait at most for the broker (3600)",
    )
    list_ = add("list", "snapshots, oldest first")
    list_.add_argument(
        "folder", nargs="?", type=Path, help="where (snapshots in the data directory)"
    )
    list_.add_argument("--json", **as_json)
    verify_ = add("verify", "read every message of one")
    verify_.add_argument("name", help="its name, or its path")
    verify_.add_argument("--json", **as_json)
    restore_ = add("restore", "make a data directory of one")
    restore_.add_argument("name", help="its name, or its path")
    restore_.add_argument("--to", type=Path, required=True, metavar="DIR", help="new or empty")
    locate_ = add("locate", "prepare one for Spark (needs leveret[spark])")
    locate_.add_argument("name", help="its name, or its path")
    drop_ = add("drop", "remove one")
    drop_.add_argument("name")


def _run(options: argparse.Namespace) -> int:
    from leveret.server.cli import snapshot_command as command  # noqa: PLC0415 - not needed by other commands

    return command.run(options)
