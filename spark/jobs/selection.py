"""Which messages a job works on: snapshots, names, times, and what only a message itself tells.

Names of vhosts and queues and times prune whole segments (``scan.pruning``). Globs of routing keys are applied to what
was read, by one regular expression that RE2 (Arrow) and Java (Spark) understand alike. ``where`` is SQL of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow.compute as pc

from leveret.spark.errors import OptionError

_ROUTING_KEY: Final = "routing_key"
_DEATHS: Final = "x_death"


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows of snapshots.

    Attributes:
        snapshots: paths.
        view: ``messages``, or ``archive`` for settled messages that a policy keeps.
        vhosts, queues, routing_keys: names, with ``*``, ``?`` and ``[...]`` as globs; empty: all.
        since, until: times at which the broker took messages in: from, and before; ISO 8601 or ms since 1970.
        state: ``ready`` or ``acked``, of the archive; empty: both.
        death_reason, death_queue, death_exchange: of the latest death of a dead letter; None or empty: all.
        where: a condition in SQL over the columns of the view; only with Spark.
        fail_on_data_loss: a message that cannot be read is an error; else it is left out.
    """

    snapshots: tuple[str, ...]
    view: str = "messages"
    vhosts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    routing_keys: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    state: str = ""
    death_reason: str = ""
    death_queue: str = ""
    death_exchange: str | None = None
    where: str = ""
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        if not self.snapshots:
            raise OptionError("no snapshot is given: name one, for example data/snapshots/NAME")
        if self.view not in {"messages", "archive"}:
            raise OptionError(f"view {self.view!r} has no messages; there are messages, archive")

    def options(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the options of a read (``ReadOptions.of``) of these columns; routing keys and ``where`` remain."""
        given = {
            "paths": json.dumps(self.snapshots),
            "view": self.view,
            "columns": ",".join(columns),
            "vhost": json.dumps(self.vhosts) if self.vhosts else "",
            "queue": json.dumps(self.queues) if self.queues else "",
            "startingTimestamp": self.since,
            "endingTimestamp": self.until,
            "state": self.state,
            "failOnDataLoss": "" if self.fail_on_data_loss else "false",
        }
        return {name: value for name, value in given.items() if value}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the selection itself uses, besides the columns of ``where``."""
        keys = (_ROUTING_KEY,) if self.routing_keys else ()
        return (*keys, _DEATHS) if self.death else keys

    @property
    def death(self) -> dict[str, str]:
        """What the latest death must be, by the names of its fields."""
        given = {
            "reason": self.death_reason or None,
            "queue": self.death_queue or None,
            "exchange": self.death_exchange,
        }
        return {name: value for name, value in given.items() if value is not None}

    def filtered(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield record batches without the rows whose routing key or latest death is not wanted."""
        pattern = glob_pattern(self.routing_keys) if self.routing_keys else None
        for batch in batches:
            kept = batch
            if pattern is not None:
                mask = pc.match_substring_regex(kept.column(_ROUTING_KEY), pattern)
                kept = kept.filter(mask)
            if self.death:
                kept = self._of_death(kept)
            if kept.num_rows:
                yield kept

    def _of_death(self, batch: Any) -> Any:
        """Return the rows with the wanted latest death, which is the first of the array."""
        died = batch.filter(pc.greater(pc.list_value_length(batch.column(_DEATHS)), 0))
        if not died.num_rows:
            return died
        latest = pc.list_element(died.column(_DEATHS), 0)
        for name, value in self.death.items():
            mask = pc.equal(pc.struct_field(latest, name), value)
            died, latest = died.filter(mask), latest.filter(mask)
        return died

    def refuse_where(self) -> None:
        """Raise OptionError if there is a condition in SQL, which only Spark can evaluate."""
        if self.where:
            raise OptionError(
                "where is SQL, which only Spark reads: use the engine spark, or leave it out"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return what was chosen, for reports and the plan of a ledger."""
        return {name: value for name, value in asdict(self).items() if value not in ((), "", None)}


def glob_pattern(globs: Sequence[str]) -> str:
    r"""Return a regular expression that matches texts that fit any of the globs, from their beginning to their end.

    It is written for RE2 and Java: ``(?s)\A(?:orders\..*|x)\z``.
    """
    return rf"(?s)\A(?:{'|'.join(map(_translated, globs))})\z"


def _translated(glob: str) -> str:
    parts, at = [], 0
    while at < len(glob):
        each = glob[at]
        end = glob.find("]", at + 2 + glob.startswith("!", at + 1)) if each == "[" else -1
        if end > 0:
            parts.append(_set(glob[at + 1 : end]))
            at = end + 1
            continue
        parts.append({"*": ".*", "?": "."}.get(each) or _quoted(each))
        at += 1
    return "".join(parts)


def _set(inside: str) -> str:
    negated = inside.startswith("!")
    members = inside[negated:]
    return f"[{'^' if negated else ''}{''.join(m if m == '-' else _quoted(m) for m in members)}]"


def _quoted(each: str) -> str:
    return f"\\{each}" if each.isascii() and not each.isalnum() and each != "_" else each
