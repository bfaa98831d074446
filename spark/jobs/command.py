"""The jobs as commands: their names, and the modules that have their arguments.

A module of a command has ``add_arguments`` and ``run``. It is loaded when its command is chosen, so a broker and the
other commands load none of it. The command line adds ``--json`` and ``--report``.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, Final, Protocol, cast

from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.report import JobReport

MODULES: Final[dict[str, str]] = {
    "replay": "leveret.spark.jobs.replay.replay",
    "dlq": "leveret.spark.jobs.dead_letters.dlq",
    "export": "leveret.spark.jobs.parquet.export",
    "import": "leveret.spark.jobs.parquet.ingest",
    "stats": "leveret.spark.jobs.stats.stats",
}


class Command(Protocol):
    """The module of a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments; ``json`` and ``report`` are taken."""

    def run(self, options: argparse.Namespace, progress: Progress) -> JobReport:
        """Carry out the parsed command.

        Raises:
            OptionError: the arguments do not go together, or name something that is not there.
            LeveretError: the job could not do its work.
            OSError: a file operation failed.
        """


def command_of(name: str, module_name: str = "") -> Command:
    """Load a command, from another module than that in ``MODULES`` if one is named.

    Raises:
        ModuleNotFoundError: a library of the extra ``spark`` is not installed.
    """
    module: Any = import_module(module_name or MODULES[name])
    return cast(Command, module)
