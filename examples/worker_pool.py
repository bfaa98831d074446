"""A pool of workers, each in a process of its own: all cores, and a crash costs one job.

One of the jobs kills its process, as the kernel does when memory runs out. The waiting caller gets an
error, the worker is restarted, and the job is tried once more.

    pip install leveret
    python examples/worker_pool.py
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import CallExit
from leveret.supervisors import RunningTree, Tree, start
from leveret.supervisors.requests import WhichChildren

WORKERS = 2


class Factoriser(GenServer):
    """Runs in a process of its own, which imports it, so it is at the top level of a module."""

    def init(self, number: int, folder: str) -> None:
        self.accident = Path(folder) / "accident"

    def handle_call(self, request: int, frm: Any) -> tuple[int, list[int]]:
        if request == 1001 and not self.accident.exists():
            self.accident.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid(), factors(request)


def factors(number: int) -> list[int]:
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


def pool(folder: str) -> Tree:
    tree = Tree("pool", intensity=5, period_s=10.0)
    for number in range(WORKERS):
        tree.actor(
            f"worker {number}",
            Factoriser,
            number,
            folder,
            isolation="process",
            start_timeout_s=30.0,
        )
    return tree


async def work(running: RunningTree, name: str, jobs: asyncio.Queue[int]) -> dict[int, Any]:
    """Give one worker the jobs, one after the other; a job whose worker dies goes back."""
    results: dict[int, Any] = {}
    while not jobs.empty():
        job = jobs.get_nowait()
        try:
            results[job] = await running.call(name, job, timeout_s=60.0)
        except CallExit as gone:
            print(f"{job}: the worker is gone ({gone.reason}), once more", flush=True)
            jobs.put_nowait(job)
            await running.call(
                "", WhichChildren(), timeout_s=60.0
            )  # answered when the worker is back
    return results


async def main(folder: str) -> None:
    jobs: asyncio.Queue[int] = asyncio.Queue()
    for number in range(997, 1005):
        jobs.put_nowait(number)
    async with start(pool(folder)) as running:
        done = await asyncio.gather(
            *(work(running, f"worker {number}", jobs) for number in range(WORKERS))
        )
    results = {job: result for part in done for job, result in part.items()}
    for job, (_, found) in sorted(results.items()):
        print(job, "=", " x ".join(map(str, found)))
    ours = os.getpid()
    print("in other processes:", all(pid != ours for pid, _ in results.values()))


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # the crash is deliberate here
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
