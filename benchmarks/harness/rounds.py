"""Rounds of work for several brokers on one machine, in alternating order, with the CPU time that they take."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from harness import brokers, results

from leveret.server.perf.cpu import descendants, used_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.brokers import Broker


def parser(text: str | None, scenarios: Mapping[str, object]) -> argparse.ArgumentParser:
    """Return a parser of the options that ``compare`` needs."""
    made = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    made.add_argument("--only", default=",".join(scenarios), help="scenarios")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--brokers", default="c,rabbitmq", help="of path, c, py and rabbitmq")
    made.add_argument("--out", type=Path, default=results.RESULTS)
    return made


def compare(
    name: str,
    options: argparse.Namespace,
    about: Mapping[str, str],
    run: Callable[[Broker, str], tuple[float, float]],
) -> None:
    """Run scenarios on all brokers, print medians, and write a file of results.

    Args:
        name: of the file.
        about: a line for each scenario.
        run: carries a scenario out; returns messages per second, and CPU microseconds per message.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with ExitStack() as stack:
        under_test = {
            each: stack.enter_context(
                brokers.rabbitmq() if each == "rabbitmq" else brokers.leveret(each)
            )
            for each in options.brokers.split(",")
        }
        for key in options.only.split(","):
            own = found[key] = {each: [] for each in under_test}
            for number in range(options.rounds):
                order = list(under_test.items())
                for each, broker in order if number % 2 else reversed(order):
                    own[each].append(run(broker, key))
            for each, rounds in own.items():
                rate, cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
                sys.stdout.write(
                    f"{key}: {each} {rate:,.0f} messages/s, {cpu:.1f} us CPU each ({about[key]})\n"
                )
                sys.stdout.flush()
    described = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions("rabbitmq" in under_test),
    }
    results.write(options.out, name, {"rounds": found}, described)


def cpu_s(broker: Broker) -> float:
    """Return the CPU time of a broker and all its descendants."""
    return used_ns(descendants(broker.pid)) / 1e9


def children(pid: int) -> Iterator[int]:
    """Return the processes that a process has started, in that order for each of its threads."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())
