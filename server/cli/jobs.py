"""The jobs over stored messages, and ``migrate``, as commands; their code is loaded when one is chosen.

Exit codes: 0 done; 1 damage was found or something was left out, the report says what, or a filter selects nothing; 64
wrong arguments; 65 refused by the broker; 69 no broker; 70 the job failed; 74 a file operation failed; 78 arguments,
snapshot or configuration cannot be used.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import ConfigError, LeveretError, StoreError
from leveret.management.errors import RefusedError
from leveret.server.control_client import NoBrokerError
from leveret.server.output.progress import progress_bar
from leveret.server.output.terminal import show

ABOUT: Final[dict[str, str]] = {
    "replay": "send messages of snapshots again",
    "dlq": "dead letters of snapshots by reason, queue and exchange",
    "stats": "messages of snapshots by queue, key, size and age",
    "export": "messages of snapshots as Parquet",
    "import": "send the rows of Parquet files as messages",
    "audit": "name every defect of a snapshot, or of stores while no broker runs",
    "rebuild": "make the index of a store from its segments alone; no broker runs",
    "migrate": "move a RabbitMQ's definitions and messages here",
}

FAILURES: Final[dict[type[LeveretError], int]] = {
    RefusedError: os.EX_DATAERR,
    NoBrokerError: os.EX_UNAVAILABLE,
    ConfigError: os.EX_CONFIG,
    StoreError: os.EX_CONFIG,
    LeveretError: os.EX_SOFTWARE,
}
OWN: Final[dict[str, str]] = {
    "audit": "leveret.server.store_tools.audit_command",
    "rebuild": "leveret.server.store_tools.rebuild_command",
    "migrate": "leveret.server.migrate.command",
}
"""Commands of the server itself: they work on data directories or brokers, which ``leveret.spark`` does not know."""


def add_parsers(commands: Any) -> None:
    """Add the commands to the list that ``leveret --help`` prints."""
    for name, about in ABOUT.items():
        commands.add_parser(name, help=about, add_help=False)


def run(parser: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> int:
    """Carry out a job with its arguments, print its report, return the exit code."""
    parser.description = ABOUT[name]
    try:
        return _run(parser, name, arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("leveret"):
            raise
        library = error.name.partition(".")[0]
        return _fail(os.EX_CONFIG, f"{library} is missing: pip install 'leveret[spark]'")
    except LeveretError as error:
        from leveret.spark.errors import NothingSelected  # noqa: PLC0415 - an extra

        if isinstance(error, NothingSelected):
            return _fail(1, str(error))
        code = next(code for kind, code in FAILURES.items() if isinstance(error, kind))
        return _fail(code, str(error))
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        return _fail(os.EX_IOERR, f"{(error.strerror or str(error)).lower()}{place}")


def _run(parser: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> int:
    from leveret.spark.jobs.command import command_of  # noqa: PLC0415 - an extra

    command = command_of(name, OWN.get(name, ""))
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write it there as JSON")
    options = parser.parse_args(arguments)
    if options.report is not None:
        options.report.touch()  # a report that cannot be written is noticed before the work
    with progress_bar(name) as progress:
        report = command.run(options, progress)
    text = report.as_json()
    if options.report is not None:
        options.report.write_text(f"{text}\n")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    show(f"{text}\n" if options.json else report.as_text(width), end="")
    return report.exit_code


def _fail(code: int, text: str) -> int:
    show(f"leveret: {text}", file=sys.stderr)
    return code
