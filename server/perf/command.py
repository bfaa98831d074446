"""``leveret perf``: exits with 0 if every check passed, 1 on any violation, 69 without a broker."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from leveret.client.errors import BrokerError
from leveret.server.output.terminal import show
from leveret.server.perf import args
from leveret.server.perf.report import Reporter
from leveret.server.perf.run import Run
from leveret.server.perf.scenario import Scenario

EX_VIOLATION: Final = 1


def main(arguments: Sequence[str]) -> int:
    """Run one scenario."""
    scenario = args.parse(arguments)
    gc.set_threshold(50_000, 20, 100)
    try:
        return asyncio.run(_run(scenario))
    except KeyboardInterrupt:
        return 130


def _interrupt(loop: asyncio.AbstractEventLoop, run: Run) -> None:
    """Stop publishing and report; a second Ctrl-C ends the process at once."""
    loop.remove_signal_handler(signal.SIGINT)
    run.stop()


async def _run(scenario: Scenario) -> int:
    reporter = Reporter(scenario.id, scenario.json_file == "-")
    reporter.begin(scenario)
    run = Run(scenario, reporter)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, _interrupt, loop, run)
    try:
        result = await run()
    except BrokerError as error:
        show(f"leveret perf: {error}", file=sys.stderr)
        return EX_VIOLATION if run.tally.sent else os.EX_UNAVAILABLE
    reporter.end(result, scenario.json_file)
    return 0 if result["ok"] else EX_VIOLATION
