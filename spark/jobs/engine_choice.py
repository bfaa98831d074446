"""Which engine runs a job, as arguments of its command. It needs no library of the extra ``spark``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final

from leveret.spark.errors import OptionError

LOCAL: Final = "local"
SPARK: Final = "spark"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What runs a job: this process alone, or Spark.

    Attributes:
        engine: ``local`` or ``spark``.
        master: of Spark: ``local[*]``, ``spark://HOST:PORT``; empty: that of spark-submit, else ``local[*]``.
        settings: of Spark, names and values.
    """

    engine: str = LOCAL
    master: str = ""
    settings: tuple[tuple[str, str], ...] = ()


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the choice of the engine."""
    group = parser.add_argument_group("how it runs")
    group.add_argument(
        "--engine",
        choices=(LOCAL, SPARK),
        help="local: in this process, without Java (local, unless --master or --where is given)",
    )
    group.add_argument(
        "--master", metavar="URL", help="of Spark: local[*], spark://HOST:PORT, ... (local[*])"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark; may be repeated",
    )


def engine_of(options: argparse.Namespace) -> EngineChoice:
    """Return the chosen engine; OptionError: options of Spark are given for the local one."""
    wants_spark = bool(options.master or options.conf or getattr(options, "where", ""))
    engine = options.engine or (SPARK if wants_spark else LOCAL)
    if engine == LOCAL and wants_spark:
        raise OptionError("--master, --conf and --where are Spark's: leave --engine local out")
    settings = tuple(pair("--conf", word) for word in options.conf)
    return EngineChoice(engine, options.master or "", settings)


def pair(option: str, word: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``; OptionError: the word has another form."""
    name, separator, value = word.partition("=")
    if not name or not separator:
        raise OptionError(f"{option} {word!r} is not NAME=VALUE")
    return name, value
