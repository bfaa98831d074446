"""Which rows an import publishes, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from leveret.spark.errors import OptionError
from leveret.spark.publish.options import above_zero

JOB: Final = "import"
MESSAGE: Final = (
    "body", "exchange", "routing_key", "properties_raw", "properties", "headers_set", "headers_remove",
)  # fmt: skip
KEY: Final = ("vhost", "queue", "seq_id")


@dataclass(frozen=True, slots=True)
class Import:
    """An import.

    Attributes:
        paths: Parquet files, or folders of them; with Spark also URIs.
        write: options of the sink (docs/spark-sink.md); ``exchange`` and ``routingKey`` are for rows that have none.
        columns: pairs of a sink's column and the file's column that it is made of.
        publishers: connections; with several, files are dealt to them.
    """

    paths: tuple[str, ...]
    write: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    publishers: int = 1

    def __post_init__(self) -> None:
        if not self.paths:
            raise OptionError("no file is given: name Parquet files, or folders of them")
        for name, _ in self.columns:
            if name not in MESSAGE:
                raise OptionError(f"the sink has no column {name!r}; it has {', '.join(MESSAGE)}")

    def chosen(self, names: list[str]) -> dict[str, str]:
        """Return for each column of the sink the file's column; OptionError: a named one is missing."""
        found = {name: name for name in MESSAGE if name in names} | dict(self.columns)
        for source in found.values():
            if source not in names:
                raise OptionError(f"there is no column {source!r}; there are {', '.join(names)}")
        if "properties_raw" in found:
            found.pop("properties", None)
        return found

    def left_out(self, names: list[str]) -> list[str]:
        """Return the file's columns that are not used."""
        return sorted({*names} - {*self.chosen(names).values()})

    def write_options(self, plan: object) -> dict[str, str]:
        """Return the options of the write; with a ledger, the text that says which rows it knows."""
        given = {"publishers": str(self.publishers), **self.write}
        if any(name.lower() == "ledger" for name in given):
            given["plan"] = json.dumps([JOB, plan, self.columns, self.publishers])
        return given

    @property
    def per_s(self) -> float:
        """The rate of all publishers, 0 without one."""
        rates = [value for name, value in self.write.items() if name.lower() == "maxrate"]
        return above_zero("maxRate", rates[0]) if rates else 0.0
