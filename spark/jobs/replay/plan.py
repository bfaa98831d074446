"""What a replay sends, how it changes it, and where to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from leveret.spark.errors import OptionError
from leveret.spark.jobs.replay.rewrite import Rewrite
from leveret.spark.jobs.selection import Selection
from leveret.spark.publish.options import above_zero
from leveret.spark.scan.manifest import local_path, read_manifest

QUEUE: Final = "queue"
NONE: Final = "none"
_OF_REWRITE: Final = (
    "exchange",
    "routingkey",
    "plan",
)  # options of a write that a replay sets itself


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay.

    Attributes:
        selection: which messages.
        rewrite: where they go, and what changes.
        write: options of the sink: ``uriFile``, ``ledger``, ``maxRate`` and so on (docs/spark-sink.md).
        publishers: connections; each has messages of its own.
        order: ``queue``: each queue is published by one connection, in its order; ``none``: by all of them.
    """

    selection: Selection
    rewrite: Rewrite = field(default_factory=Rewrite)
    write: Mapping[str, str] = field(default_factory=dict)
    publishers: int = 1
    order: str = QUEUE

    def __post_init__(self) -> None:
        if self.order not in {QUEUE, NONE}:
            raise OptionError(f"order {self.order!r} is unknown; there are {QUEUE}, {NONE}")
        for name in self.write:
            if name.lower() in _OF_REWRITE:
                raise OptionError(f"option {name} of the sink is the replay's own: use its rewrite")

    @property
    def changes(self) -> Rewrite:
        """The rewrite, knowing whether rows have seqs."""
        return replace(self.rewrite, has_seqs=self.selection.view == "messages")

    @property
    def per_s(self) -> float:
        """The rate of all publishers, 0 without one; OptionError: it is not a number."""
        rates = [value for name, value in self.write.items() if name.lower() == "maxrate"]
        return above_zero("maxRate", rates[0]) if rates else 0.0

    def write_options(self, engine: str) -> dict[str, str]:
        """Return the options of the write; with a ledger, its plan."""
        given = {"publishers": str(self.publishers), **self.write}
        if any(name.lower() == "ledger" for name in given):
            given["plan"] = self._plan(engine)
        return given

    def _plan(self, engine: str) -> str:
        """Return a text that says which rows come in which order; paths of snapshots may change."""
        found = [read_manifest(local_path(path)) for path in self.selection.snapshots]
        said = {
            "engine": engine,
            "snapshots": [[each.node, each.name, each.created_ms] for each in found],
            "selection": self.selection.as_dict() | {"snapshots": len(found)},
            "rewrite": asdict(self.changes),
            "publishers": self.publishers,
            "order": self.order,
        }
        return json.dumps(said, sort_keys=True)
