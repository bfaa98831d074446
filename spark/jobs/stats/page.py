"""The page of ``leveret stats``: one file of HTML with plots in SVG, without scripts and without references to others.

Names of queues and keys are chosen by clients, so every text is escaped, and controls are shown as ``printable`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

from leveret.core.printable import printable
from leveret.spark.jobs.report import JobReport
from leveret.spark.jobs.tables import names_of

_WIDTH: Final = 720
_HEIGHT: Final = 200
_LEFT: Final = 64
_BOTTOM: Final = 24
_TOP: Final = 10
_ROW: Final = 24
_NAMES: Final = 200
_TICKS: Final = 5
_NUMBERS: Final = 7  # columns of numbers in a table; with the names they fit the page
_STYLE: Final = """
:root { color-scheme: light dark; --bar: #2f6f9f; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; } dt { font-size: .8rem; opacity: .7; }
dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } rect { fill: var(--bar); } line { stroke: var(--line); }
text { fill: currentColor; font-size: 11px; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td:not(.number) { overflow-wrap: anywhere; min-width: 5rem; } .table + .table { margin-top: 1.5rem; }
"""
_TILES: Final = {
    "messages": "messages", "body_bytes": "bytes of bodies", "queues": "queues", "persistent": "persistent",
    "with_ttl": "with a TTL", "dead_letters": "dead letters",
}  # fmt: skip


def page(report: JobReport) -> str:
    """Return the page of a report of ``stats``."""
    details = report.details
    shots = ", ".join(f"{each['name']} ({each['created']})" for each in details["snapshots"])
    plots = [
        ("Messages per minute, by the time the broker took them in", _rates(details["rates"])),
        ("Sizes of bodies, bytes", _columns(_named_sizes(details["sizes"]))),
        ("Ages at the time of the snapshot", _columns(list(details["ages"].items()))),
        ("Dead letters by reason", _rows(list(details["reasons"].items()))),
        ("Queues", _table(details["queues"])),
        ("Routing keys", _table(details["keys"])),
    ]
    parts = [f"<h2>{_text(title)}</h2>\n{plot}" for title, plot in plots]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Messages of {_text(shots)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Stored messages</h1>\n<p>{_text(shots)}</p>\n{_tiles(report)}\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _tiles(report: JobReport) -> str:
    found = [(label, _number(report.counts[name])) for name, label in _TILES.items()]
    found.append(("age of the oldest", _duration(int(report.counts["oldest_age_s"]))))
    tiles = "".join(f"<div><dt>{_text(label)}</dt><dd>{value}</dd></div>" for label, value in found)
    return f"<dl>{tiles}</dl>"


def _rates(rates: dict[str, Any]) -> str:
    if not rates["per_minute"]:
        return "<p>none</p>"
    start = datetime.fromisoformat(rates["start"])
    span = timedelta(minutes=rates["span_min"])
    bars = [
        (f"{start + place * span:%Y-%m-%d %H:%M}", value)
        for place, value in enumerate(rates["per_minute"])
    ]
    return _columns(bars)


def _named_sizes(sizes: dict[str, int]) -> list[tuple[str, float]]:
    return [(f"under {_bytes(int(bound))}", count) for bound, count in sizes.items()]


def _columns(bars: Sequence[tuple[str, float]]) -> str:
    """Return a plot of columns, with the values of the axis and some names below."""
    if not bars:
        return "<p>none</p>"
    top = max(value for _, value in bars) or 1
    step = (_WIDTH - _LEFT) / len(bars)
    high = _HEIGHT - _BOTTOM - _TOP
    parts = []
    for tick in range(_TICKS):
        y = _TOP + high - high * tick / (_TICKS - 1)
        shown = _short(top * tick / (_TICKS - 1))
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>')
    for place, (name, value) in enumerate(bars):
        tall = high * value / top
        x, y = _LEFT + place * step, _TOP + high - tall
        title = f"<title>{_text(name)}: {_number(value)}</title>"
        size = f'width="{max(0.5, step * 0.9):.2f}" height="{tall:.2f}"'
        parts.append(f'<rect x="{x:.2f}" y="{y:.2f}" {size}>{title}</rect>')
    every = -(-len(bars) // 6)
    for place in range(0, len(bars), every):
        x = _LEFT + (place + 0.5) * step
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{_text(bars[place][0])}</text>'
        )
    return _svg(_HEIGHT, parts)


def _rows(bars: Sequence[tuple[str, float]]) -> str:
    """Return a plot of rows, each with its name before it and its value behind it."""
    if not bars:
        return "<p>none</p>"
    top = max(value for _, value in bars) or 1
    parts = []
    for place, (name, value) in enumerate(bars):
        y, wide = place * _ROW, (_WIDTH - _NAMES - 80) * value / top
        shown = name if len(name) <= 32 else f"{name[:31]}…"
        parts.append(f'<text x="{_NAMES - 8}" y="{y + 16}" text-anchor="end">{_text(shown)}</text>')
        parts.append(f'<rect x="{_NAMES}" y="{y + 4}" width="{wide:.1f}" height="16"/>')
        parts.append(f'<text x="{_NAMES + wide + 6:.1f}" y="{y + 16}">{_number(value)}</text>')
    return _svg(len(bars) * _ROW, parts)


def _svg(height: int, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "<p>none</p>"
    names = names_of({name: [value] for name, value in rows[0].items()})
    numbers = [name for name in rows[0] if name not in names]
    starts = range(0, max(1, len(numbers)), _NUMBERS)
    return "".join(_part(rows, [*names, *numbers[at : at + _NUMBERS]]) for at in starts)


def _part(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return a table of some columns."""
    head = "".join(f"<th>{_text(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(row[name]) for name in names)}</tr>\n" for row in rows)
    return f'<div class="table"><table><tr>{head}</tr>\n{body}</table></div>\n'


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, str):
        return f"<td>{_text(value)}</td>"
    return f'<td class="number">{_number(value)}</td>'


def _text(value: str) -> str:
    return escape(printable(value))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _short(value: float) -> str:
    """Return a number of an axis: 1.5k, 20M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _bytes(value: int) -> str:
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << bits:
            return f"{value >> bits} {unit}"
    return f"{value} B"


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
