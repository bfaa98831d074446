"""The output of a run: PerfTest's lines during the run and its summary at the end, or JSON only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from leveret.server.output.terminal import OutputClosedError, drop_output, show
from leveret.server.perf.agents import Tally
from leveret.server.perf.scenario import Scenario

SHARES: Final = (50.0, 75.0, 95.0, 99.0)


class Reporter:
    """Prints the lines of one run.

    Attributes:
        is_closed: the reader has closed the output.
    """

    def __init__(self, run_id: str, is_quiet: bool) -> None:
        self._id = run_id
        self._is_quiet = is_quiet
        self._sent = 0
        self._received = 0
        self._at_ns = 0
        self.is_closed = False

    def begin(self, scenario: Scenario) -> None:
        """Print which broker gets the load, and when the run ends."""
        ends = {
            f"{scenario.time_s:g} s": scenario.time_s,
            f"{scenario.producer_messages} messages of each publisher": scenario.producer_messages,
            f"{scenario.consumer_messages} messages of each consumer": scenario.consumer_messages,
        }
        until = " or ".join(text for text, given in ends.items() if given) or "Ctrl-C"
        target = scenario.target
        self._show(f"id: {self._id}, target: {target} as {target.user}, until {until}")

    def line(self, tally: Tally, now_ns: int) -> None:
        took_s = max(1, now_ns - self._at_ns) / 1e9
        sent = (tally.sent - self._sent) / took_s
        received = (tally.received - self._received) / took_s
        self._sent, self._received, self._at_ns = tally.sent, tally.received, now_ns
        window = tally.close_window()
        text = f"id: {self._id}, time: {now_ns / 1e9:.3f}s, sent: {sent:.0f} msg/s"
        text += f", received: {received:.0f} msg/s"
        if window.count:
            stats = "/".join(map(str, [window.min_us, *window.percentiles(SHARES)]))
            text += f", min/median/75th/95th/99th consumer latency: {stats} µs"
        self._show(text)

    def end(self, result: dict[str, Any], file: str | None) -> None:
        self._show(summary(result), end="")
        if file == "-":
            show(json.dumps(result), flush=True)
        elif file is not None:
            Path(file).write_text(json.dumps(result, indent=1) + "\n", "utf-8")

    def _show(self, text: str, end: str = "\n") -> None:
        if self._is_quiet:
            return
        try:
            show(text, end=end, flush=True)
        except OutputClosedError:
            self.is_closed = True
            drop_output()


def summary(result: dict[str, Any]) -> str:
    """Return the lines at the end of a run."""
    run = result["id"]
    lines = [
        f"id: {run}, sending rate avg: {result['sent_per_s']:.0f} msg/s",
        f"id: {run}, receiving rate avg: {result['received_per_s']:.0f} msg/s",
    ]
    for key, name in (("latency_us", "consumer"), ("confirm_us", "confirm")):
        if key in result:
            stats = result[key]
            names = ("min", "p50", "p75", "p95", "p99", "p999", "max")
            text = "/".join(str(stats[entry]) for entry in names)
            lines.append(
                f"id: {run}, {name} latency min/median/75th/95th/99th/99.9th/max {text} µs"
            )
    if "broker_cpu_us_per_msg" in result:
        lines.append(f"id: {run}, broker CPU {result['broker_cpu_us_per_msg']:.2f} µs per message")
    counts = (
        f"sent {result['sent']}, received {result['received']}, confirmed {result['confirmed']}"
    )
    violations = ", ".join(f"{kind} {count}" for kind, count in result["violations"].items())
    verdict = "verified" if result["ok"] else f"VIOLATIONS {violations}"
    lines.append(f"id: {run}, {counts}: {verdict}")
    lines += [f"id: {run},   {text}" for text in result["violation_texts"]]
    return "\n".join(lines) + "\n"
