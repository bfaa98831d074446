"""``leveret migrate``: import the definitions of a RabbitMQ, then move the messages of its queues."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from leveret.client.target import Target
from leveret.core.errors import ConfigError
from leveret.metadata.definitions import REFUSE, UNSUPPORTED_QUEUES
from leveret.server import control_client as control
from leveret.server.config.config import DATA_DEFAULT, default_data_dir
from leveret.server.migrate.definitions import Queue, definitions_of, queues_of
from leveret.server.migrate.pump import QueueState
from leveret.server.migrate.transfer import QueueStatus, Transfer, connected, queue_statuses
from leveret.server.migrate.transfer import run as run_all
from leveret.spark.jobs.progress import Progress
from leveret.spark.jobs.report import JobReport
from leveret.spark.publish.target import Tls, UriSource, parse_uri

JOB: Final = "migrate"
PREFETCH: Final = 200
_IMPORT_S: Final = 600.0
_TARGET: Final = "amqp://127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``leveret migrate``."""
    parser.add_argument(
        "--definitions",
        required=True,
        metavar="FILE|URL",
        help="exported definitions, or http[s]://[USER@]HOST:15672 of the management plug-in",
    )
    _add_place(parser, "source", "the broker that has the messages", required=True)
    _add_place(parser, "target", f"this Leveret ({_TARGET})", required=False)
    group = parser.add_argument_group("definitions")
    group.add_argument(
        "--data",
        type=Path,
        default=default_data_dir(),
        metavar="DIR",
        help=f"the Leveret's data ({DATA_DEFAULT})",
    )
    group.add_argument(
        "--no-import", action="store_true", help="move messages only: the target has the queues"
    )
    group.add_argument(
        "--unsupported-queues",
        choices=UNSUPPORTED_QUEUES,
        default=REFUSE,
        help=f"as of ctl import_definitions ({REFUSE})",
    )
    group = parser.add_argument_group("messages")
    for name in ("queue", "vhost"):
        group.add_argument(
            f"--{name}", action="append", default=[], metavar="GLOB", help="may be repeated (all)"
        )
    group.add_argument(
        "--prefetch",
        type=_count,
        default=PREFETCH,
        metavar="N",
        help=f"messages of each queue on their way, and the most duplicates of a crash ({PREFETCH})",
    )
    group.add_argument("--follow", action="store_true", help="go on until SIGINT or SIGTERM")
    parser.add_argument(
        "--dry-run", action="store_true", help="count messages; import and move nothing"
    )


def _add_place(parser: argparse.ArgumentParser, side: str, about: str, *, required: bool) -> None:
    group = parser.add_argument_group(side, about)
    place = group.add_mutually_exclusive_group(required=required)
    place.add_argument(
        f"--{side}",
        metavar="URI",
        help="amqp[s]://[USER@]HOST[:PORT] without a password (guest's is known) and vhost",
    )
    place.add_argument(f"--{side}-file", metavar="FILE", help="its first line is the URI")
    place.add_argument(f"--{side}-env", metavar="NAME", help="variable that has the URI")
    group.add_argument(f"--{side}-ca", default="", metavar="FILE", help="authorities to trust")


def run(options: argparse.Namespace, progress: Progress) -> JobReport:
    """Carry out ``leveret migrate``.

    Returns:
        Counts of queues and moved messages; ``details["queues"]`` has them for each queue.

    Raises:
        ConfigError: an argument or the definitions cannot be used.
        RefusedError: the target refuses the definitions; nothing was changed.
        NoBrokerError: no broker runs in the data directory.
        MigrationFailed, BrokerError: a broker will not go on; unconfirmed messages are still at the source.
    """
    sides = {side: (_place(options, side), _tls(options, side)) for side in ("source", "target")}
    if options.follow and options.dry_run:
        raise ConfigError("--follow has no effect on a dry run: leave it out")
    report = JobReport(JOB, is_dry_run=options.dry_run)
    document = definitions_of(options.definitions)
    queues = queues_of(document, options.vhost, options.queue)
    if not options.dry_run and not options.no_import:
        arguments = {"document": document, "unsupported_queues": options.unsupported_queues}
        for notice in control.ask(options.data, "import_definitions", arguments, _IMPORT_S):
            report.warn(notice)
    with contextlib.ExitStack() as stack:
        migration = _Migration(sides, queues, report, stack)
        if not options.dry_run:
            migration.move(options.prefetch, options.follow, progress)
        migration.report()
    return report.end()


class _Migration:
    """The queues that can be moved, by vhost, and their connections."""

    def __init__(
        self,
        sides: dict[str, tuple[Target, Tls]],
        queues: list[Queue],
        report: JobReport,
        stack: contextlib.ExitStack,
    ) -> None:
        self._sides = sides
        self._report = report
        self._stack = stack
        self._statuses: dict[str, dict[str, QueueStatus]] = {}
        self._transfers: dict[str, Transfer] = {}
        for queue in queues:
            if queue.why_not:
                self._leave_out(queue.vhost, queue.name, queue.why_not)
        for vhost in dict.fromkeys(queue.vhost for queue in queues):
            names = [each.name for each in queues if each.vhost == vhost and not each.why_not]
            found = queue_statuses(self._connected("source", vhost), names)
            for name, status in found.items():
                if status.reply:
                    self._leave_out(vhost, name, f"source: {status.reply}")
                elif status.consumers:
                    text = f"has {status.consumers} consumers, which take messages as well"
                    report.warn(f'queue "{name}" of vhost "{vhost}" {text}')
            self._statuses[vhost] = {name: each for name, each in found.items() if not each.reply}

    def move(self, prefetch: int, follow: bool, progress: Progress) -> None:
        """Move the messages; the text of a failure ends with how many were moved."""
        for vhost, statuses in self._statuses.items():
            if not statuses:
                continue
            target = self._connected("target", vhost)
            found = queue_statuses(target, [*statuses])
            missing = [name for name, each in found.items() if each.reply]
            if missing:
                raise ConfigError(
                    f'the target has no queue "{missing[0]}" in vhost "{vhost}" ({len(missing)} are missing):'
                    " leave --no-import out, or choose queues with --queue"
                )
            source = self._connected("source", vhost)
            self._transfers[vhost] = Transfer(source, target, [*statuses], prefetch)
        total = sum(each.messages for some in self._statuses.values() for each in some.values())
        with _stopping() as is_stopped:
            run_all(
                self._transfers,
                follow=follow,
                is_stopped=is_stopped.is_set,
                seen=lambda moved: progress("messages", moved, 0 if follow else total),
            )

    def report(self) -> None:
        """Write the counts."""
        report = self._report
        states: dict[tuple[str, str], QueueState] = {}
        for vhost, transfer in self._transfers.items():
            states |= {(vhost, state.name): state for state in transfer.pump.queues}
        rows = []
        for vhost, statuses in self._statuses.items():
            for name, status in statuses.items():
                row: dict[str, Any] = {"vhost": vhost, "queue": name, "messages": status.messages}
                state = states.get((vhost, name))
                if state is not None:
                    row |= {"moved": state.moved, "redelivered": state.redelivered}
                    if state.is_cancelled:
                        self._leave_out(vhost, name, "it was deleted meanwhile")
                    if state.without_cc:
                        report.warn(
                            f'{state.without_cc} messages of queue "{name}" of vhost "{vhost}" lost their headers'
                            " CC and BCC, which would have sent copies to other queues"
                        )
                rows.append(row)
        report.counts |= {"queues": len(rows), "messages": sum(row["messages"] for row in rows)}
        if not report.is_dry_run:
            report.counts["moved"] = sum(row.get("moved", 0) for row in rows)
        report.details["queues"] = sorted(rows, key=lambda row: (row["vhost"], row["queue"]))

    def _connected(self, side: str, vhost: str) -> Any:
        place, tls = self._sides[side]
        client = connected(place, vhost, tls)
        self._stack.callback(client.abort)
        return client

    def _leave_out(self, vhost: str, name: str, why: str) -> None:
        self._report.is_complete = False
        self._report.warn(f'queue "{name}" of vhost "{vhost}" was left out: {why}')


def _place(options: argparse.Namespace, side: str) -> Target:
    """Return a broker's address; ConfigError: it shows a password, or names a vhost."""
    uri, file, name = (getattr(options, f"{side}{more}") for more in ("", "_file", "_env"))
    if uri and parse_uri(uri, f"--{side}").password not in {"", "guest"}:
        raise ConfigError(
            f"--{side} has a password, which the list of processes shows: use --{side}-file or --{side}-env"
        )
    if not (uri or file or name):
        uri = _TARGET
    found = UriSource(uri or "", file or "", name or "").read(lambda _: None)
    if found.vhost != "/":
        raise ConfigError(f"--{side} names a vhost: leave it out, and choose vhosts with --vhost")
    return found


def _tls(options: argparse.Namespace, side: str) -> Tls:
    return Tls(ca=getattr(options, f"{side}_ca"))


class _Flag:
    """Set by a signal."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self, *_: object) -> None:
        self._is_set = True


@contextmanager
def _stopping() -> Iterator[_Flag]:
    """Have SIGINT and SIGTERM set a flag while the block runs."""
    flag = _Flag()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, flag.set) for each in signals]
    try:
        yield flag
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 65_535:
        raise argparse.ArgumentTypeError(f"{value} is not a number from 1 to 65535")
    return value
