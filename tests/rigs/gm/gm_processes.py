"""Nodes in processes of their own, with members of groups, linked over relays; killed, stopped, cut off, and judged."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from leveret.gm.records.codec import unpack
from leveret.gm.records.group import Group as Record
from leveret.testing.relays import Relays
from rigs.cluster.etcd import Etcd
from rigs.gm import gm_process
from rigs.gm.recording import Recording, read
from rigs.nodes import clean_environment
from rigs.view_history import versions, violations
from rigs.waiting import wait_until

ANSWER_S = 120.0  # for a machine with much else to do
SECRET = "a secret of tests"


class NodeProcess:
    """A node; killed when the context is left."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self.name: str = settings["name"]
        self.is_stopped = False
        self.log = folder / f"{self.name}.log"
        self._numbers = itertools.count()
        self._answers: dict[int, tuple[Any, str]] = {}
        self._unread = b""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", gm_process.__file__, json.dumps(settings)],
                cwd=folder,
                env=clean_environment(PYTHONPATH=str(Path(gm_process.__file__).parents[2])),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.address = ""
        self.node = ""

    def wait_ready(self) -> None:
        _, self.address, self.node = self._line(ANSWER_S)

    def tell(self, command: str, *arguments: Any) -> int:
        """Send a command; return the number with which to ask for its answer."""
        number = next(self._numbers)
        assert self.process.stdin is not None
        line = json.dumps([number, command, arguments]).encode() + b"\n"
        try:
            os.write(self.process.stdin.fileno(), line)
        except BrokenPipeError as error:
            raise EOFError(f"{self.name} has ended\n{self.tail()}") from error
        return number

    def result(self, number: int) -> tuple[Any, str]:
        """Return a command's answer, or its error as text."""
        deadline_s = time.monotonic() + ANSWER_S
        while number not in self._answers:
            answered, value, error = self._line(deadline_s - time.monotonic())
            self._answers[answered] = value, error
        return self._answers.pop(number)

    def answer(self, number: int) -> Any:
        value, error = self.result(number)
        assert not error, f"{self.name}: {error}\n{self.tail()}"
        return value

    def ask(self, command: str, *arguments: Any) -> Any:
        return self.answer(self.tell(command, *arguments))

    def _line(self, left_s: float) -> list[Any]:
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        deadline_s = time.monotonic() + left_s
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([output], [], [], left_s)
            assert ready, f"{self.name} does not answer\n{self.tail()}"
            piece = os.read(output, 65536)
            if not piece:
                raise EOFError(f"{self.name} has ended\n{self.tail()}")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        found: list[Any] = json.loads(line)
        return found

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill9(self) -> None:
        self.process.kill()
        self.gone()

    def gone(self) -> None:
        """Wait for the end of a process that a trap kills."""
        self.process.wait(ANSWER_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def stop(self) -> None:
        """Stop it with SIGSTOP; it has stopped when this returns."""
        self.is_stopped = True
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False


class ProcessRing:
    """Nodes in processes, and one group of theirs at a time.

    Args:
        folder: for histories and logs.
        etcd: has the records.
        names: of the nodes.
        relays: between them and to etcd.
        random: for the load.
        suspect_s: after so much silence a link is broken.
        etcd_s: for an answer of etcd.
    """

    def __init__(
        self,
        folder: Path,
        etcd: Etcd,
        names: Iterable[str],
        relays: Relays,
        random: Random,
        suspect_s: float,
        etcd_s: float,
    ) -> None:
        self.folder = folder
        self.etcd = etcd
        self.names = tuple(names)
        self.relays = relays
        self.random = random
        self.group = ""
        self.nodes: dict[str, NodeProcess] = {}
        self._rounds = itertools.count(1)
        self._settings = {
            "folder": str(folder),
            "secret": SECRET,
            "prefix": f"/{folder.name}-{os.getpid()}-{random.getrandbits(32)}",
            "suspect_s": suspect_s,
            "etcd_s": etcd_s,
        }
        relays.place("etcd", f"127.0.0.1:{etcd.port}")

    # Processes.

    def begin(self) -> None:
        """Begin a round: all nodes run, are linked with each other, and have no members of the new group."""
        self.relays.heal()
        self.group = f"g{next(self._rounds)}"
        (self.folder / self.group).mkdir()
        fresh = [name for name in self.names if not self.is_running(name)]
        self.start(*fresh)

    def is_running(self, name: str) -> bool:
        return name in self.nodes and self.nodes[name].is_running

    def start(self, *names: str) -> None:
        """Start nodes, and wait until they are linked with all that run."""
        for name in names:
            if name in self.nodes and not self.nodes[name].is_running:
                self.nodes[name].gone()
            etcd = f"http://{self.relays.address(name, 'etcd')}"
            settings = self._settings | {"name": name, "etcd": etcd}
            self.nodes[name] = NodeProcess(settings, self.folder)
        for name in names:
            self.nodes[name].wait_ready()
            self.relays.place(name, self.nodes[name].address)
        running = self.running()
        waits = []
        for name in running:
            others = {
                other: self.relays.address(name, other)
                for other in running
                if other != name and (name in names or other in names)
            }
            if others:
                waits.append((name, self.nodes[name].tell("peers", others)))
        for name, number in waits:
            self.nodes[name].answer(number)

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill9()
            else:
                node.gone()
        self.nodes.clear()

    # The group.

    def tell(self, name: str, command: str, *arguments: Any) -> int:
        return self.nodes[name].tell(command, self.group, *arguments)

    def ask(self, name: str, command: str, *arguments: Any) -> Any:
        return self.nodes[name].ask(command, self.group, *arguments)

    def trap(self, name: str, *traps: dict[str, Any]) -> None:
        self.nodes[name].ask("trap", *traps)

    def join(self, *names: str) -> list[str]:
        """Join, one after the other."""
        return [self.ask(name, "join") for name in names]

    def join_with_load(self, *names: str) -> list[str]:
        members = self.join(*names)
        for name in names:
            self.load(name)
        return members

    def load(self, name: str, pause_s: float = 0.02) -> None:
        self.ask(name, "load", pause_s, self.random.getrandbits(32))

    def running(self) -> list[str]:
        """Return the nodes that can answer."""
        return [
            name for name in self.names if self.is_running(name) and not self.nodes[name].is_stopped
        ]

    def status(self) -> dict[str, Any]:
        """Return what all members know, by their names."""
        numbers = [(name, self.tell(name, "status")) for name in self.running()]
        found: dict[str, Any] = {}
        for name, number in numbers:
            found |= self.nodes[name].answer(number)
        return found

    def until(self, holds: Any, within_s: float = ANSWER_S) -> dict[str, Any]:
        """Ask all members what they know until something holds for it, and return that."""
        found: dict[str, Any] = {}

        def look() -> object:
            nonlocal found
            found = self.status()
            return holds(found)

        wait_until(look, lambda: (found, self.record()), within_s, 0.03)
        return found

    def until_gone(self, *members: str) -> dict[str, Any]:
        """Wait until nobody has these members in its view."""
        gone = set(members)
        return self.until(
            lambda found: found and not any(gone & {*each["members"]} for each in found.values())
        )

    def until_members(self, count: int) -> dict[str, Any]:
        """Wait until there are so many members, and all of them have just these in their views."""
        return self.until(
            lambda found: (
                len(found) == count
                and all({*each["members"]} == {*found} for each in found.values())
            )
        )

    def record(self) -> Record | None:
        key = base64.b64encode(self._key().encode()).decode()
        rows = json.loads(self.etcd.post("/v3/kv/range", json.dumps({"key": key}))).get("kvs", [])
        if not rows:
            return None
        return unpack(base64.b64decode(rows[0]["value"]), int(rows[0]["mod_revision"]))

    def versions(self) -> list[Record]:
        return versions(self.etcd, self._key())

    def _key(self) -> str:
        return f"{self._settings['prefix']}/gm/{self.group}"

    def rests(self, count: int) -> Recording:
        """End the load, wait until so many members are at rest, and judge the histories of all that ever were."""
        for name in self.running():
            self.ask(name, "quiet")
        numbers = [(name, self.tell(name, "confirm")) for name in self.running()]
        for name, number in numbers:
            self.nodes[name].answer(number)
        found = self.until(lambda found: len(found) == count and self._is_at_rest(found))
        for name in self.running():
            self.ask(name, "rest")
        recording = self.recording()
        assert recording.violations() == []
        assert {str(member) for member in recording.rests} == set(found)
        assert violations(self.versions()) == []
        return recording

    def _is_at_rest(self, found: dict[str, Any]) -> bool:
        record = self.record()
        if record is None or len(record.alive()) < len(record.entries):
            return False
        return {str(member) for member in record.alive()} == set(found) and all(
            tuple(each["stamp"]) == record.stamp and not each["pending"] for each in found.values()
        )

    def recording(self) -> Recording:
        """Return the histories of all members of the group so far."""
        return read([self.folder / self.group])

    def end_round(self) -> None:
        """Have the members leave: the next round begins without them."""
        for name in self.running():
            self.ask(name, "stay_no_more")
            self.nodes[name].ask("trap")
        for name in self.running():
            self.ask(name, "drop")


@contextmanager
def process_ring(
    folder: Path,
    etcd: Etcd,
    names: Iterable[str],
    random: Random,
    suspect_s: float,
    etcd_s: float,
) -> Iterator[ProcessRing]:
    with Relays(random) as relays:
        ring = ProcessRing(folder, etcd, names, relays, random, suspect_s, etcd_s)
        try:
            yield ring
        finally:
            ring.close()
