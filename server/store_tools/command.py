"""``leveret store``: tools for stored messages while no broker runs.

=========  =========================================  =============================================
verb       does                                       exit code 1
=========  =========================================  =============================================
stat       prints stats
verify     checks every row, message and count        something is damaged
salvage    copies readable messages elsewhere         something was left behind
repair     lists repairs; with ``--yes`` does them,   something is to be repaired
           with ``--plan`` those of an audit
compact    makes segments and index small             one of the stores must be repaired first
=========  =========================================  =============================================
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.core.errors import StoreError
from leveret.server.output.terminal import show

if TYPE_CHECKING:
    from leveret.management.json_text import Row

EX_DAMAGED: Final = 1


def add_parser(commands: Any) -> None:
    """Add the command to the parser's ``commands``."""
    store = commands.add_parser("store", help="check and repair stored messages; no broker runs")
    verbs = store.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, about in (
        ("stat", "print figures of a store"),
        ("verify", "check every message and every count"),
        ("salvage", "copy readable messages into a new store"),
        ("repair", "repair a store in place"),
        ("compact", "give disk space back"),
    ):
        added = verbs.add_parser(verb, help=about)
        added.add_argument(
            "dir", type=Path, metavar="DIR", help="a data directory, or the folder of one store"
        )
        added.add_argument("--json", action="store_true", help="one JSON object")
        if verb == "salvage":
            added.add_argument(
                "--to", type=Path, required=True, metavar="DIR2", help="where; made, or empty"
            )
            added.add_argument(
                "--from-segments",
                action="store_true",
                help="take all that is in the segments, acked or not, and ask no index",
            )
        if verb == "repair":
            how = added.add_mutually_exclusive_group()
            how.add_argument("--yes", action="store_true", help="do it, rather than only say it")
            how.add_argument(
                "--plan",
                type=Path,
                metavar="FILE",
                help="do what leveret audit --repair-plan wrote",
            )
        added.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        with quiet():
            answer = _work(options)
    except StoreError as error:
        return _fail(os.EX_CONFIG, str(error))
    except OSError as error:
        return _fail(os.EX_IOERR, f"{error.strerror or error}: {error.filename or options.dir}")
    from leveret.server.output import formats  # noqa: PLC0415 - only when there is an answer
    from leveret.server.store_tools.text import is_unsound, text_of  # noqa: PLC0415

    text = formats.json_line(answer) if options.json else text_of(options.verb, answer)
    show(text, end="")
    is_lost = options.verb != "stat" and (
        answer["metadata_damage"] or answer["metadata_difference"]
    )
    return EX_DAMAGED if is_unsound(answer) or is_lost else 0


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log while the block runs: the answer of a tool has all of it."""
    log = logging.getLogger("leveret")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _work(options: argparse.Namespace) -> Row:
    from leveret.server.store_tools import work  # noqa: PLC0415 - the stores, for this verb only

    match options.verb:
        case "stat":
            return work.stat(options.dir)
        case "verify":
            return work.verify(options.dir)
        case "salvage":
            return work.salvage_to(options.dir, options.to, options.from_segments)
        case "repair" if options.plan is not None:
            return work.repair_by(options.dir, options.plan)
        case "repair":
            return work.repair(options.dir, options.yes)
        case _:
            return work.compact(options.dir)


def _fail(code: int, text: str) -> int:
    show(f"leveret: {text}", file=sys.stderr)
    return code
