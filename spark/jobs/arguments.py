"""Arguments that several commands take: which messages, where to.

Their names follow the fields that they fill: of ``Selection`` and the options of a write.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from leveret.spark.errors import OptionError
from leveret.spark.jobs.engine_choice import pair
from leveret.spark.jobs.selection import Selection
from leveret.spark.publish.target import parse_uri

_DLX: Final = "deadLetterExchange"


def add_selection(parser: argparse.ArgumentParser, *, view: bool = True) -> None:
    """Add the snapshots and the filters."""
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT", help="path of a snapshot")
    group = parser.add_argument_group("which messages (all)")
    if view:
        group.add_argument(
            "--view",
            choices=("messages", "archive"),
            default="messages",
            help="archive: also settled messages that a policy keeps (messages)",
        )
        group.add_argument("--state", choices=("ready", "acked"), help="of the archive (both)")
    for name, what in (
        ("--queue", "queue"), ("--vhost", "vhost"), ("--routing-key", "routing key"),
    ):  # fmt: skip
        group.add_argument(
            name,
            action="append",
            default=[],
            metavar="GLOB",
            help=f"{what}, with * ? [...]; may be repeated",
        )
    for name in ("reason", "queue", "exchange"):
        group.add_argument(
            f"--death-{name}",
            metavar=name.upper(),
            help=f"{name} of the latest death of a dead letter",
        )
    time = "ISO 8601 (UTC without a zone), or ms since 1970"
    group.add_argument("--from", dest="since", default="", metavar="TIME", help=f"{time}")
    group.add_argument("--to", dest="until", default="", metavar="TIME", help="before that time")
    group.add_argument(
        "--where", default="", metavar="SQL", help="a condition over the columns; needs Spark"
    )
    group.add_argument(
        "--skip-lost",
        action="store_true",
        help="leave out messages that cannot be read (they are an error)",
    )


def selection_of(options: argparse.Namespace) -> Selection:
    """Return the parsed selection; OptionError: it contradicts itself."""
    view, state = getattr(options, "view", "messages"), getattr(options, "state", None)
    if state and view != "archive":
        raise OptionError("--state has no effect without --view archive")
    return Selection(
        tuple(options.snapshots),
        view,
        tuple(options.vhost),
        tuple(options.queue),
        tuple(options.routing_key),
        options.since,
        options.until,
        state or "",
        options.death_reason or "",
        options.death_queue or "",
        options.death_exchange,
        options.where,
        not options.skip_lost,
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add where to publish, and what to do when a message is not taken."""
    group = parser.add_argument_group("where to, and how")
    target = group.add_mutually_exclusive_group()
    target.add_argument(
        "--target",
        metavar="URI",
        help="amqp[s]://[USER@]HOST[:PORT][/VHOST] without a password (guest's is known)",
    )
    target.add_argument("--target-file", metavar="FILE", help="its first line is the URI")
    target.add_argument("--target-env", metavar="NAME", help="variable that has the URI")
    group.add_argument("--ledger", metavar="DIR", help="remembers what was sent: run it again")
    group.add_argument("--publishers", type=_count, default=1, metavar="N", help="connections (1)")
    group.add_argument("--rate", metavar="N", help="messages per second, of all publishers")
    group.add_argument(
        "--on-unroutable", choices=("fail", "deadletter", "drop"), help="reaches no queue (fail)"
    )
    group.add_argument("--on-nack", metavar="WHAT", help="retry(N), deadletter or fail (fail)")
    group.add_argument("--dead-letter-exchange", metavar="NAME", help="for deadletter")
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of the sink, such as tls.ca or window; may be repeated",
    )


def write_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of the write (``publish.options.parse``); OptionError: they show a password."""
    if options.target and parse_uri(options.target, "--target").password not in {"", "guest"}:
        raise OptionError(
            "--target has a password, which the list of processes shows: use --target-file or --target-env"
        )
    given = {
        "uri": options.target,
        "uriFile": options.target_file,
        "uriEnv": options.target_env,
        "ledger": options.ledger,
        "publishers": str(options.publishers),
        "maxRate": options.rate,
        "onUnroutable": options.on_unroutable,
        "onNack": options.on_nack,
        _DLX: options.dead_letter_exchange,
    }
    made = {name: value for name, value in given.items() if value or (name == _DLX and value == "")}
    return made | dict(pair("--option", word) for word in options.option)


def check_target(options: argparse.Namespace, write: Mapping[str, str]) -> None:
    """Raise OptionError if there is no target and something is to be published."""
    if not options.dry_run and not {"uri", "uriFile", "uriEnv"} & write.keys():
        raise OptionError("no target is given: use --target, --target-file or --target-env")


def _count(text: str) -> Any:
    value = int(text)
    if not 1 <= value <= 1_000:
        raise argparse.ArgumentTypeError(f"{value} is not a number from 1 to 1000")
    return value
