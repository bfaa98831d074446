"""Play random schedules by the million, in several processes, with pauses if need be.

``python tools/schedules.py gm 0 1000000 --done FILE`` plays the schedules of these seeds, and notes in FILE which
blocks of them hold. Started again with the same FILE it goes on with the others, and with ``--seconds`` it ends after
that time. A seed that breaks a guarantee is printed, and noted; the exit code is 1 then, 3 if there are seeds left.
``Schedule(seed).run()`` of ``rigs.gm.schedules``, or ``rigs.mirroring.schedules``, repeats one.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # also where PYTHONSAFEPATH is set

from rigs.gm.schedules import Schedule as RingSchedule
from rigs.mirroring.schedules import Schedule as ReplicaSchedule

BLOCK = 1_000  # seeds that are noted together
KINDS: dict[str, type[RingSchedule] | type[ReplicaSchedule]] = {
    "gm": RingSchedule,
    "replicas": ReplicaSchedule,
}


def begin() -> None:
    """Prepare a process: its log would tell of each store that fails, and its collector runs when ``judge`` says."""
    logging.disable()
    gc.disable()


def judge(kind: str, block: range) -> tuple[range, list[str]]:
    """Play a block of schedules; return it with what is wrong."""
    wrong = []
    for seed in block:
        try:
            found = KINDS[kind](seed).run()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            found = [repr(error)]
        if found:
            wrong.append(f"Schedule({seed}).run() found {found}")
        if seed % 50 == 0:  # the collector is off: between schedules is the cheapest moment
            gc.collect()
    return block, wrong


def read_done(path: Path | None) -> set[int]:
    """Return the first seeds of the blocks that hold, as lines ``FIRST END ok`` say."""
    if path is None or not path.exists():
        return set()
    lines = [line.split() for line in path.read_text().splitlines()]
    return {int(words[0]) for words in lines if words[2:] == ["ok"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=KINDS, help="guaranteed multicast, or replicas of a queue")
    parser.add_argument("first", type=int, help=f"the first seed, a multiple of {BLOCK}")
    parser.add_argument("end", type=int, help="the seed behind the last")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--done", type=Path, help="file of the blocks that hold")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no block later")
    args = parser.parse_args()
    if args.first % BLOCK or args.end <= args.first or args.processes < 1:
        parser.error(f"the seeds must begin with a multiple of {BLOCK}, and end behind it")
    done = read_done(args.done)
    todo = deque(
        range(seed, min(seed + BLOCK, args.end))
        for seed in range(args.first, args.end, BLOCK)
        if seed not in done
    )
    began_s, count, wrong = time.monotonic(), 0, 0
    with multiprocessing.get_context("spawn").Pool(args.processes, begin) as pool:
        while todo and time.monotonic() - began_s < args.seconds:
            batch = [todo.popleft() for _ in range(min(args.processes, len(todo)))]
            for block, found in pool.imap_unordered(partial(judge, args.kind), batch):
                count += len(block)
                wrong += len(found)
                for each in found:
                    print(each, flush=True)
                if args.done:
                    with args.done.open("a") as file:
                        file.write(f"{block.start} {block.stop} {'wrong' if found else 'ok'}\n")
    left = sum(map(len, todo))
    spent_s = time.monotonic() - began_s
    print(f"{count:,} schedules in {spent_s:.0f} s, {wrong} wrong, {left:,} left")
    return 1 if wrong else 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
