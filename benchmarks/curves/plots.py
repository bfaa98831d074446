#!/usr/bin/env python3
"""The curves that ``growth.py`` has measured, as tables, and as plots in SVG.

python benchmarks/curves/plots.py benchmarks/results/<date>-<commit>-growth.json docs/plots
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

REFERENCE: Final = "rabbitmq"
NAMES: Final = {
    "leveret-c": "Leveret",
    "leveret-path": "Leveret, compiled path",
    "leveret-py": "Leveret, pure",
    REFERENCE: "RabbitMQ",
}
AXES: Final = {
    "queues": "queues, one of which a message is for",
    "connections": "connections, each with a message under way",
    "fan-out": "queues of a fanout exchange",
    "topic": "bindings of a topic exchange, one of which matches",
    "headers": "bindings of a headers exchange, one of which matches",
}
COLOURS: Final = {REFERENCE: "#d9661f"}
OWN_COLOURS: Final = ("#2f6f9f", "#5a9a3c")
WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 110, 34, 48


class Point(NamedTuple):
    """A size, with medians of CPU microseconds for a delivery and of deliveries per second."""

    size: int
    cpu_us: float
    rate: float


Lines = dict[str, list[Point]]
Curves = dict[str, Lines]


def curves(medians: dict[str, dict[str, dict[str, float]]]) -> Curves:
    """Return curve -> broker -> points, from the medians of scenarios that are called ``CURVE SIZE``."""
    found: Curves = {}
    for scenario, own in medians.items():
        curve, _, size = scenario.rpartition(" ")
        for name, figures in own.items():
            point = Point(int(size), figures["broker_cpu_us_per_msg"], figures["msgs_per_s"])
            found.setdefault(curve, {}).setdefault(name, []).append(point)
    return found


def growth(line: list[Point]) -> float:
    """Return the highest cost of a delivery, divided by the lowest one at a smaller or the same size."""
    least, most = math.inf, 1.0
    for point in line:
        least = min(least, point.cpu_us)
        most = max(most, point.cpu_us / least)
    return most


def table(curve: str, lines: Lines) -> str:
    """Return a curve as a table of Markdown."""
    sizes = [point.size for point in next(iter(lines.values()))]
    rows = [
        f"| {curve} | {' | '.join(f'{size:,}' for size in sizes)} | growth |",
        f"|---|{'--:|' * (len(sizes) + 1)}",
    ]
    for name, line in lines.items():
        cells = [*(f"{point.cpu_us:,.1f}" for point in line), f"{growth(line):.2f}x"]
        rows.append(f"| {NAMES[name]}, µs CPU for a delivery | {' | '.join(cells)} |")
    for name, line in lines.items():
        cells = [f"{point.rate:,.0f}" for point in line]
        rows.append(f"| {NAMES[name]}, deliveries/s | {' | '.join(cells)} | |")
    return "\n".join(rows)


def plot(curve: str, lines: Lines) -> str:
    """Return a curve as SVG, with both axes logarithmic."""
    points = [point for line in lines.values() for point in line]
    scale = _Scale(
        min(point.size for point in points),
        max(point.size for point in points),
        _step_below(min(point.cpu_us for point in points)),
        _step_above(max(point.cpu_us for point in points)),
    )
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 18, "broker CPU, µs for a delivery", "start"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, AXES.get(curve, curve), "middle"),
    ]
    for cost in _steps(scale.low, scale.high):
        y = scale.y(cost)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(LEFT - 6, y + 4, f"{cost:,g}", "end"))
    sizes = sorted({point.size for point in points})
    parts += [_text(scale.x(at), HEIGHT - BOTTOM + 18, f"{at:,}", "middle") for at in sizes]
    own = iter(OWN_COLOURS)
    for name, line in lines.items():
        parts += _line(NAMES[name], line, scale, COLOURS.get(name) or next(own))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def write(found: Curves, folder: Path) -> None:
    """Write a plot of each curve."""
    folder.mkdir(parents=True, exist_ok=True)
    for curve, lines in found.items():
        (folder / f"{curve}.svg").write_text(plot(curve, lines))


class _Scale(NamedTuple):
    """From sizes and costs to places in the plot."""

    first: float
    last: float
    low: float
    high: float

    def x(self, size: float) -> float:
        share = math.log(size / self.first) / (math.log(self.last / self.first) or 1)
        return LEFT + 16 + share * (WIDTH - LEFT - RIGHT - 32)

    def y(self, cost: float) -> float:
        share = math.log(cost / self.low) / math.log(self.high / self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _line(name: str, line: list[Point], scale: _Scale, colour: str) -> list[str]:
    places = [(scale.x(point.size), scale.y(point.cpu_us)) for point in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
        f"<title>{name}, {point.size:,}: {point.cpu_us:,.1f} µs</title></circle>"
        for (x, y), point in zip(places, line, strict=True)
    ]
    label = _text(places[-1][0] + 10, places[-1][1] + 4, name, "start", colour)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *dots,
        label,
    ]


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


def _steps(low: float, high: float) -> list[float]:
    """Return the steps 1, 2 and 5 of each power of ten from a cost to another."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [
        step * 10.0**power
        for power in powers
        for step in (1, 2, 5)
        if low * 0.999 <= step * 10.0**power <= high * 1.001
    ]


def _step_below(cost: float) -> float:
    return max(_steps(cost / 10, cost))


def _step_above(cost: float) -> float:
    """Return a step that is larger than the cost."""
    return min(_steps(cost * 1.01, cost * 11))


def main() -> None:
    source, folder = map(Path, sys.argv[1:])
    medians: dict[str, Any] = json.loads(source.read_text())["medians"]
    found = curves(medians)
    write(found, folder)
    for curve, lines in found.items():
        print(f"{table(curve, lines)}\n")


if __name__ == "__main__":
    main()
