#!/usr/bin/env python3
"""The longest iteration of the event loop, for each operation that a peer can make large.

    python benchmarks/turns.py                          # all operations: half an hour
    python benchmarks/turns.py --only delete,purge      # those with one of these words in operation or size
    python benchmarks/turns.py --scale 0.1              # a tenth of each size
    python benchmarks/turns.py --stacks --only purge    # and where the long iterations were
    python benchmarks/turns.py --check                  # exit 1 when one is over 50 ms
    python benchmarks/turns.py --out benchmarks/results --table docs/reference/turns.md
    python benchmarks/turns.py --earlier <results>-turns.json ...    # only those near the limit in an earlier run

Each operation gets a fresh ``leveret serve`` with its defaults (``harness/meter.py``) and is carried out over real
sockets by this process (``harness/peer.py``). The table shows the longest iteration of the loop and the longest garbage
collection, in milliseconds of CPU time, from the operation's beginning until the broker is idle again.
The modules of ``operations/`` have the operations, a function each.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set
from harness import brokers, results
from harness.meter import FIGURES
from harness.peer import Peer
from operations import (
    delays,
    ends,
    letters,
    listeners,
    messages,
    operators,
    plugins,
    topology,
    transactions,
    turn_table,
)
from operations.operation import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_MS = 50.0
CLOSE = 0.8  # of the limit: from there on a noisy machine decides, and three measurements are made
LOOK_S = 0.15
QUIET_S = 0.006  # of CPU time between two looks
QUIET_LOOKS = 4
IDLE_S = 180.0
SHOWN = 2  # iterations of an operation, with their stacks
KERNEL, LOOP = "c", "asyncio"
OPERATIONS: list[Operation] = [
    *topology.OPERATIONS,
    *messages.OPERATIONS,
    *letters.OPERATIONS,
    *ends.OPERATIONS,
    *transactions.OPERATIONS,
    *operators.OPERATIONS,
    *listeners.OPERATIONS,
    *plugins.OPERATIONS,
    *delays.OPERATIONS,
]


class Rig:
    """A broker with a meter, for one operation."""

    def __init__(self, broker: brokers.Broker, folder: Path, scale: float) -> None:
        self.broker = broker
        self._scale = scale
        self._folder = folder
        self._file = (folder / "meter").open("r+b")
        self._map = mmap.mmap(self._file.fileno(), FIGURES.size)
        self._stacks_at = 0

    def scaled(self, count: int) -> int:
        """Return a size of the operation, scaled."""
        return max(1, int(count * self._scale))

    def peer(self, **options: Any) -> Peer:
        """Open a connection with channel 1."""
        return Peer((self.broker.host, self.broker.port), **options)

    @property
    def tls(self) -> tuple[str, int]:
        """The address of the TLS listener."""
        return self._listener(1)

    @property
    def proxied(self) -> tuple[str, int]:
        """The address of the listener with the PROXY protocol."""
        return self._listener(2)

    def _listener(self, number: int) -> tuple[str, int]:
        place: str = self.control("status")["listeners"][number]
        host, _, port = place.rpartition("/")[2].rpartition(":")
        return host, int(port)

    def send(self, data: bytes) -> socket.socket:
        """Send bytes on a connection of their own, as far as the broker takes them."""
        client = socket.create_connection((self.broker.host, self.broker.port), 60)
        with suppress(ConnectionError):
            client.sendall(data)
        return client

    def control(self, verb: str, **arguments: Any) -> Any:
        """Ask the broker as an operator does."""
        from leveret.server.control_client import ask

        return ask(self._folder / "data", verb, arguments, 600.0)

    def control_bytes(self, data: bytes) -> None:
        """Send bytes to the control socket until it is closed."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self._folder / "data" / "control.sock"))
            with suppress(ConnectionError):
                client.sendall(data)

    def measure(self) -> None:
        """Wait until the broker is idle, and begin to measure."""
        self.settle()
        self._stacks_at = self._stacks.stat().st_size
        FIGURES.pack_into(self._map, 0, 0.0, 0.0, 0.0)

    def settle(self) -> None:
        """Wait until the broker is idle."""
        deadline_s, quiet = time.monotonic() + IDLE_S, 0
        before_s = self._cpu_s()
        while quiet < QUIET_LOOKS and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
            now_s = self._cpu_s()
            quiet = quiet + 1 if now_s - before_s < QUIET_S else 0
            before_s = now_s

    @property
    def _stacks(self) -> Path:
        return self._folder / "stacks"

    def _cpu_s(self) -> float:
        tasks = Path(f"/proc/{self.broker.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def found(self) -> dict[str, float]:
        """Return the figures since ``measure``."""
        iteration_s, collection_s, count = FIGURES.unpack(self._map)
        return {
            "iteration_ms": iteration_s * 1000,
            "collection_ms": collection_s * 1000,
            "iterations": count,
        }

    def stacks(self) -> str:
        """Return the stacks of long iterations since ``measure``."""
        with self._stacks.open() as file:
            file.seek(self._stacks_at)
            several = file.read().split("\n\n")[:-1]
        several.sort(key=lambda each: -float(each.split()[0]))
        return "\n".join(several[:SHOWN])


@contextmanager
def rig(scale: float, stacks: str = "", settings: str = "") -> Iterator[Rig]:
    """Start a broker with a meter in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="leveret-turns") as name:
        folder = Path(name)
        (folder / "meter").write_bytes(bytes(FIGURES.size))
        (folder / "stacks").touch()
        (folder / "leveret.toml").write_text(settings + brokers.tls_settings(folder))
        command = [sys.executable, str(Path(__file__).parent / "harness/meter.py"), name, "serve"]
        command += ["--listen", "127.0.0.1:0", "--listen", "amqps://127.0.0.1:0"]
        command += [
            "--listen",
            "127.0.0.2:0?proxy_protocol=true",
            "--data",
            f"{name}/data",
            "--log-level",
            "critical",
        ]
        command += ["--config", f"{name}/leveret.toml"]
        process = subprocess.Popen(
            command,
            env=brokers.environment(
                LEVERET_KERNEL=KERNEL, LEVERET_LOOP=LOOP, LEVERET_TURNS_STACKS=stacks
            ),
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            ready = brokers.READY.match(line := process.stdout.readline())
            if ready is None:
                raise brokers.StartError(line)
            broker = brokers.Broker("leveret", ready[1], int(ready[2]), process.pid)
            yield Rig(broker, folder, scale)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def main() -> int:
    """Run the operations and print the table."""
    options = _parser().parse_args()
    words = [word for word in options.only.split(",") if word]
    earlier = json.loads(options.earlier.read_text()) if options.earlier is not None else {}
    rows = {(row["operation"], row["size"]): row for row in earlier.get("operations", ())}
    found: list[dict[str, Any]] = []
    print(f"{'operation':44} {'size':52} {'ms':>8} {'gc ms':>7}", flush=True)
    for operation in OPERATIONS:
        label = f"{operation.name} {operation.size}"
        if words and not any(word in label for word in words):
            continue
        row = rows.get((operation.name, operation.size))
        if row is None or is_close(row, options.limit):
            row = _median(operation, options)
        found.append(row)
    about = {
        "commit": results.commit(),
        "machine": results.machine(),
        "versions": results.versions(with_rabbitmq=False),
        "kernel": KERNEL,
        "loop": LOOP,
        "scale": options.scale,
        "limit_ms": options.limit,
        "close_ms": CLOSE * options.limit,
        "known": len(OPERATIONS),
        "earlier": earlier.get("earlier") or earlier.get("commit", ""),
    }
    if options.out is not None or options.table is not None:
        with tempfile.TemporaryDirectory() as name:
            file = results.write(options.out or Path(name), "turns", {"operations": found}, about)
            if options.table is not None:
                options.table.write_text(turn_table.page(json.loads(file.read_text())))
    late = sum(turn_table.is_late(row, options.limit) for row in found)
    print(f"{len(found)} operations, {late} over {options.limit:g} ms or not carried out")
    return 1 if options.check and late else 0


def is_close(row: dict[str, Any], limit_ms: float) -> bool:
    """Return whether a figure is so near to the limit that one measurement does not decide."""
    return turn_table.is_late(row, CLOSE * limit_ms)


def _median(operation: Operation, options: argparse.Namespace) -> dict[str, Any]:
    """Measure an operation; if it comes close to the limit, three times, and return the median."""
    measured = [_measured(operation, options)]
    if is_close(measured[0], options.limit):
        measured += [_measured(operation, options) for _ in range(2)]
    measured.sort(key=lambda row: (bool(row["problem"]), row["iteration_ms"]))
    return measured[len(measured) // 2]


def _measured(operation: Operation, options: argparse.Namespace) -> dict[str, Any]:
    """Carry out an operation once; print its figures and return them."""
    with rig(options.scale, "1" if options.stacks else "") as each:
        problem = ""
        try:
            operation.run(each)
            each.settle()
        except Exception as error:  # noqa: BLE001  # the other operations go on
            problem = f"{type(error).__name__}: {error}"
        row = {
            "operation": operation.name,
            "size": operation.size,
            "note": operation.note,
            **{name: round(figure, 1) for name, figure in each.found().items()},
            "problem": problem,
        }
        mark = "!" if turn_table.is_late(row, options.limit) else ""
        print(
            f"{operation.name:44} {operation.size:52} {row['iteration_ms']:8.1f}"
            f" {row['collection_ms']:7.1f} {mark}{problem}",
            flush=True,
        )
        if options.stacks:
            print(each.stacks(), flush=True)
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="words, with commas between them")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--limit", type=float, default=LIMIT_MS, help="in milliseconds")
    parser.add_argument(
        "--earlier", type=Path, help="JSON of a run whose figures far below the limit are kept"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when one is over the limit")
    parser.add_argument("--stacks", action="store_true", help="show where long iterations were")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    parser.add_argument("--table", type=Path, help="file for the figures as a page of docs/")
    return parser


if __name__ == "__main__":
    sys.exit(main())
