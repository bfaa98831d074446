"""The report of a job: its results in numbers, as lines for people and as JSON for programs.

A job returns its report when it has done its work, also if it found damage or left rows out (``is_complete``).
A job that cannot do its work raises instead.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from leveret.spark.jobs.tables import tables

EX_FOUND: Final = 1  # as of ``leveret store`` and ``snapshot verify``


@dataclass(slots=True)
class JobReport:
    """The report of one run of a job.

    Attributes:
        job: the job's name, as on the command line.
        engine: ``local`` or ``spark``.
        is_dry_run: nothing was sent or written; the counts say what would have been.
        counts: numbers by name; a unit ends a name, as in ``body_bytes`` or ``duration_s``.
        details: what the numbers are made of, by name: lists and objects that JSON can hold.
        warnings: what the operator must know, a sentence each.
        is_complete: nothing damaged was found and nothing left out; else the command exits with 1.
        started_s, ended_s: wall time in seconds since 1970.
    """

    job: str
    engine: str = "local"
    is_dry_run: bool = False
    counts: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    is_complete: bool = True
    started_s: float = field(default_factory=time.time)
    ended_s: float | None = None

    def count(self, name: str, more: float = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + more

    def warn(self, text: str) -> None:
        """Add a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def end(self) -> JobReport:
        """Note the time of the end; return the report."""
        self.ended_s = time.time()
        return self

    @property
    def exit_code(self) -> int:
        return 0 if self.is_complete else EX_FOUND

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them; times as ISO 8601 in UTC."""
        return {
            "job": self.job,
            "engine": self.engine,
            "dry_run": self.is_dry_run,
            "started": _iso(self.started_s),
            "ended": _iso(self.ended_s),
            "complete": self.is_complete,
            "counts": dict(self.counts),
            "details": dict(self.details),
            "warnings": list(self.warnings),
        }

    def as_json(self) -> str:
        """Return one line of JSON; values that JSON does not know (times, paths) become texts."""
        return json.dumps(self.as_dict(), default=str)

    def as_text(self, width: int | None = None) -> str:
        """Return the report as lines: warnings, then counts, then details.

        Args:
            width: the width of the terminal, for tables that fit it; None: each row is a line of ``name=value``.
        """
        head = f"{self.job} ({self.engine}{', dry run' if self.is_dry_run else ''})"
        lines = [f"warning: {text}" for text in self.warnings]
        lines += [head, *(f"  {name}: {_number(value)}" for name, value in self.counts.items())]
        for name, value in self.details.items():
            lines += [f"{name}:", *(_shown(value) if width is None else _fitted(value, width))]
        return "".join(f"{line}\n" for line in lines)


def _iso(time_s: float | None) -> str | None:
    if time_s is None:
        return None
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _fitted(value: Any, width: int) -> list[str]:
    """Return the lines of a detail for a terminal."""
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        return tables(value, width)
    return [
        part
        for line in _shown(value)
        for part in textwrap.wrap(line, width, subsequent_indent="    ", break_long_words=False)
    ]


def _shown(value: Any) -> list[str]:
    """Return the lines of a detail: a row of ``name=value`` for each object, a line for all else."""
    if isinstance(value, list):
        return [f"  {_row(each)}" for each in value]
    if isinstance(value, Mapping):
        return [f"  {name}: {_row(each)}" for name, each in value.items()]
    return [f"  {value}"]


def _row(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_word(each)}" for name, each in value.items())
    return str(value)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return (
            json.dumps(value, ensure_ascii=False) if not value or set(value) & set(' "=') else value
        )
    return json.dumps(value, default=str, ensure_ascii=False)
