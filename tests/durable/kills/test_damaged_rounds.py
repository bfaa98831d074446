"""A broker is killed, and then one file of its data directory is damaged, again and again: no damage is silent.

After each damage:

* The damaged file alone held all confirmed messages that are missing, and ``leveret store verify``, the log or the
  status of the next start names it. An acked message comes back only if they name the file, too.
* No queue has a message twice, or one that nobody published. Each queue keeps its order.
* A start that is refused names the file and the remedy. The test follows the remedy, and no queue is lost.
* The node serves.

A kill without damage is never called damage. The node does not notice the damages that ``docs/storage.md`` names:
the loss of frames behind the end mark, which a kill causes as well, and a changed expiry of a row of the index.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.raw import Channel, Connection
from durable.kills.clients import (
    FAN_OUT,
    FANNED,
    PRIORITY,
    PRIORITY_MAX,
    Client,
    Consumer,
    Echo,
    Names,
    Publisher,
)
from durable.kills.damages import (
    INDEX,
    JOURNAL,
    SEGMENT,
    SNAPSHOT,
    Damage,
    Damager,
    copy_of,
    held_alone,
    recent,
)
from durable.kills.oracle import Known, is_transient, name_of, place_of
from durable.test_store_tools import store
from leveret.management.snapshots import manifest
from rigs.nodes import READY, clean_environment, command_line, leveret_program
from rigs.programs import ended
from rigs.waiting import wait_until

TESTS: Final = Path(__file__).parents[2]
FREQUENT: Final = (sys.executable, "-P", str(TESTS / "rigs" / "frequent_serve.py"))
LOCKS: Final = {"lock", "lock.mdb"}  # hold nothing
QUORUM, ARCHIVED = "consumed", "kept"
RETENTION: Final = '{"replay-retention": 5000}'  # milliseconds
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    QUORUM: {"x-queue-type": "quorum"},
    PRIORITY: {"x-max-priority": PRIORITY_MAX},
}
LEFT_MAX: Final = 150  # messages that stay in a queue from one round to the next
CONFIRMED_MAX: Final = 800  # in one round
OLDER_ROUNDS: Final = 2  # whose copies are kept
START_S: Final = 120.0
END_S: Final = 30.0
REFUSED: Final = 78
RESTARTED: Final = "message store failed, its vhost is restarted"
WARNINGS: Final = re.compile(r" (?:warning|error|critical) .*")
FALSE_ALARM: Final = re.compile(
    "has a gap|index cannot be used|another store|end mark|bytes, and had"
)
WORDS: Final = {
    SEGMENT: "STEM|messages? lost|cannot be read",
    JOURNAL: "journal|STEM",
    INDEX: "index|counted|lie elsewhere|cannot be read|rows give|are said to be|is said to have|number of rows",
    "end": "end mark",
    "node": "node",
    "metadata/data.mdb": "metadata",
}

Taken = dict[str, list[tuple[str, bool]]]  # by queue: names, and whether they came before


class Node:
    """A ``leveret serve`` that may not get ready.

    Attributes:
        address: where it listens, when it is ready.
        refused: why it did not start; empty if it did.
        degraded: which vhost is down; empty if none is.
    """

    def __init__(self, folder: Path, program: Iterable[str]) -> None:
        self._output, self._log = folder / "output", folder / "log"
        command = [*program, "serve", "--listen", "127.0.0.1:0", "--data", str(folder / "data")]
        with self._output.open("w") as output, self._log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=clean_environment(PYTHONPATH=str(TESTS)),
                stdout=output,
                stderr=log,
            )
        self.refused = self.degraded = ""
        self.address = "", 0
        wait_until(self._is_decided, lambda: self.log, START_S)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _is_decided(self) -> bool:
        is_running = self.process.poll() is None
        for line in self._output.read_text().splitlines(keepends=True):
            if ready := READY.match(line):
                self.address = ready[2], int(ready[3])
            elif " degraded: " in line and line.endswith("\n"):
                self.degraded = line
        if not is_running:
            assert self.process.returncode == REFUSED, (self.process.returncode, self.log)
            self.refused = self.log
        return bool(self.address[0] or self.degraded or self.refused)

    def channel(self) -> Channel:
        connection = Connection(self.address)
        connection.open()
        return connection.channel()

    def is_serving(self) -> bool:
        connection = Connection(self.address)
        try:
            return connection.open().name == "connection.open-ok"
        finally:
            connection.drop()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(END_S) == 0, self.log


@dataclass
class Said:
    """The reports of a damage.

    Attributes:
        damage: the lines of ``leveret store verify``, ``leveret status`` and a refused start.
        lines: the warnings of the log, and what ``verify`` takes for traces of a crash.
    """

    damage: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def calls_damaged(self, damage: Damage) -> bool:
        """Whether a report calls the file damaged."""
        words = WORDS.get(damage.kind, re.escape(damage.path.name))
        pattern = words.replace("STEM", damage.path.stem)
        return any(re.search(pattern, line) for line in self.damage)

    def names(self, damage: Damage) -> bool:
        """Whether a report, or a line of the log, names the file."""
        return Said(self.damage + self.lines).calls_damaged(damage)


class DamagedRounds:
    """The lives of one node."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder, self._data = folder, folder / "data"
        self._rng = rng
        self._clients = random.Random(rng.getrandbits(32))  # shared by their threads
        self._publishers = [Names(each, self._clients) for each in ("pa", "pb", "ec")]
        self._round = 0
        self._node: Node
        self.story: list[str] = []
        self.damages = self.lost = 0

    def run(self, rounds: int) -> None:
        try:
            self._begin()
            self._use()
            self._data.rename(self._folder / "other")  # another node's
            self._begin()
            for _ in range(rounds):
                self._one()
            self._node.stop()
        except BaseException:
            sys.stdout.write("\n".join(["the damages so far:", *self.story, ""]))
            raise
        finally:
            self._node.kill()

    def _begin(self) -> None:
        """Start a new node with empty queues."""
        self._known = {queue: Known() for queue in FANNED}
        self._ever: dict[str, set[str]] = {queue: set() for queue in FANNED}  # published
        self._order: dict[str, list[str]] = {queue: [] for queue in FANNED}  # at the last start
        self._declared: list[str] = []
        self._node = Node(self._folder, FREQUENT)
        channel = self._node.channel()
        channel.ok("exchange.declare", exchange=FAN_OUT, type="fanout", durable=True)
        for queue in FANNED:
            declare(channel, queue)
            channel.ok("queue.bind", queue=queue, exchange=FAN_OUT)
        channel.connection.drop()
        self._control("set_policy", "archive", f"^{ARCHIVED}$", RETENTION)

    def _control(self, *words: str) -> str:
        return command_line("ctl", "--data", str(self._data), *words)

    def _run(self, *words: str) -> str:
        return command_line(*words, "--data", str(self._data))

    def _one(self) -> None:
        self._round += 1
        self._use()
        before = copy_of(self._data, self._folder / f"round{self._round}")
        alarms = [line for line in self._verified().damage if FALSE_ALARM.search(line)]
        assert not alarms, f"a kill is called damage: {alarms}"
        older = [self._folder / f"round{self._round - each}" for each in range(1, OLDER_ROUNDS + 1)]
        damager = Damager(
            self._data, self._rng, [self._folder / "middle", *older], self._folder / "other"
        )
        damage = damager.damage()
        self.story.append(f"round {self._round}: {damage}")
        said = self._verified()
        self._check_snapshot(damage)
        is_rebuilt = self._repair(damage, said)
        self._start(before, damage, said)
        self._check(before, damage, said, is_rebuilt)
        shutil.rmtree(older[-1], ignore_errors=True)

    # Until the kill.

    def _use(self) -> None:
        """Let clients work until a random number of messages has been confirmed, then kill the node."""
        node, rng, known = self._node, self._clients, self._known
        first, second, echo = self._publishers
        publishers = [Publisher(node.address, known, names, rng) for names in (first, second)]
        others: list[Client] = [
            Consumer(node.address, known, QUORUM, rng),
            Consumer(node.address, known, PRIORITY, rng),
            Echo(node.address, known, echo),
        ]
        clients = [*publishers, *others]
        for client in clients:
            client.start()
        wanted = self._rng.randrange(2, CONFIRMED_MAX)

        def is_enough(count: int) -> bool:
            errors = [each.error for each in clients if each.error is not None]
            return bool(errors) or sum(each.confirmed for each in publishers) >= count

        wait_until(lambda: is_enough(wanted // 2), within_s=60)
        self._change_definitions(node)
        copy_of(self._data, self._folder / "middle")
        if self._rng.random() < 0.3:
            self._make_snapshot()
        wait_until(lambda: is_enough(wanted), within_s=60)
        for client in clients:
            client.is_ending = True
        node.kill()
        for client in clients:
            client.join(END_S)
            assert client.error is None, client.error
        assert "Traceback" not in node.log, node.log
        for queue, each in known.items():
            self._ever[queue] |= each.published

    def _change_definitions(self, node: Node) -> None:
        """Declare a queue that only the metadata of this life has, and delete one."""
        channel = node.channel()
        self._declared.append(f"new.{self._round}")
        channel.ok("queue.declare", queue=self._declared[-1], durable=True)
        if len(self._declared) > 3:
            channel.ok("queue.delete", queue=self._declared.pop(0))
        channel.connection.drop()

    def _make_snapshot(self) -> None:
        if (self._data / "snapshots" / "s").exists():
            self._run("snapshot", "drop", "s")
        self._run("snapshot", "create", "s")

    # The reports of the damage, and the remedies.

    def _verified(self) -> Said:
        code, answer, errors = store("verify", self._data)
        assert code in {0, 1}, (code, errors)
        said = Said([answer["metadata_damage"], answer["metadata_difference"]])
        for each in answer["stores"]:
            said.damage += [*each.get("damage", ()), *each.get("notes", ()), each.get("error", "")]
            said.lines += each.get("of_a_crash", ())
        said.damage = [each for each in said.damage if each]
        return said

    def _check_snapshot(self, damage: Damage) -> None:
        """A snapshot is called damaged where bytes are missing that it needs; a segment may be longer."""
        if damage.kind != SNAPSHOT or damage.path.name in LOCKS:
            return
        if damage.is_shorter and not self._has_all_bytes(damage.path):
            command = [leveret_program(), "snapshot", "verify", "s", "--data", str(self._data)]
            done = ended(command, self._folder)
            assert done.returncode, f"{damage}: {done.stdout}"

    def _has_all_bytes(self, path: Path) -> bool:
        """Whether a file of a snapshot is as long as the manifest says."""
        snapshot, file = self._data / "snapshots" / "s", self._data / path
        if not file.exists() or file.name == manifest.NAME:
            return False
        sizes = {name: entry.size_bytes for name, entry in manifest.read(snapshot).all_files()}
        wanted = sizes.get(file.relative_to(snapshot).as_posix())
        return wanted is not None and file.stat().st_size >= wanted

    def _repair(self, damage: Damage, said: Said) -> bool:
        """Mend what ``verify`` calls damaged, by chance; return whether the index was rebuilt."""
        if damage.path.parts[0] != "vhosts" or not said.calls_damaged(damage):
            return False
        ways = ["started as it is", "repaired", *["rebuilt"] * (damage.kind == INDEX)]
        way = self._rng.choice(ways)
        self.story.append(f"  {way}")
        if way == "repaired":
            assert store("repair", self._data, "--yes")[0] == 0
        elif way == "rebuilt":
            done = ended([leveret_program(), "rebuild", str(self._data)], self._folder)
            assert done.returncode in {0, 1}, done.stderr  # 1: an entry was of no message
        return way == "rebuilt"

    def _start(self, before: Path, damage: Damage, said: Said) -> None:
        """Start the node; if the start is refused or a vhost is down, apply the remedy that the node names."""
        program = FREQUENT if self._rng.random() < 0.7 else (leveret_program(),)
        self._node = Node(self._folder, program)
        if refused := self._node.refused:
            said.damage.append(refused)
            self._follow(refused, before, damage)
            self._node = Node(self._folder, program)
        if degraded := self._node.degraded:
            said.damage.append(degraded)
            assert "leveret store repair" in degraded, degraded
            self._node.stop()
            assert store("repair", self._data, "--yes")[0] == 0
            self._node = Node(self._folder, program)
        assert self._node.address[0], self._node.log

    def _follow(self, refused: str, before: Path, damage: Damage) -> None:
        path = self._data / damage.path
        assert str(path) in refused or str(path.parent) in refused, refused
        if "remove the file" in refused:
            path.unlink()
        else:
            assert "put back" in refused, refused
            path.unlink(missing_ok=True)
            shutil.copy(before / damage.path, path)

    # What must hold.

    def _check(self, before: Path, damage: Damage, said: Said, is_rebuilt: bool) -> None:
        node = self._node
        channel, taken = self._taken()
        status = json.loads(self._run("status", "--json"))
        said.damage += [line for each in status["stores"] for line in each["damage"]]
        said.lines += WARNINGS.findall(node.log)
        is_named = said.names(damage)
        self.damages += is_named
        self.story.append("  named" if is_named else "  not named")
        # The bit may be of one message's row, or of its place, which nothing else has.
        changed_rows = int(damage.kind == INDEX and damage.way == "flipped" and not is_rebuilt)
        problems = [*self._wrong_definitions(), *self._wrong(taken, is_named, changed_rows)]
        lost, back = self._missing(taken), self._back(taken)
        if (lost or back) and damage.kind == JOURNAL and not said.calls_damaged(damage):
            lost -= recent(before)
            back = set()
        if len(lost) <= changed_rows:
            lost = set()
        if lost and not is_named:
            problems.append(f"lost in silence: {sorted(lost)[:5]}")
        if back and not is_named:
            problems.append(f"acked, and back in silence: {sorted(back)[:5]}")
        others = lost and lost - held_alone(before, damage.path)
        if others:
            problems.append(f"{len(others)} lost that other files have: {sorted(others)[:5]}")
        assert "Traceback" not in node.log, node.log
        assert not problems, "\n".join([str(damage), *problems, *said.damage, "and", *said.lines])
        self.lost += len(lost)
        self._leave_some(channel, taken)

    def _taken(self) -> tuple[Channel, Taken]:
        """Take all messages; once more if the vhost is restarted meanwhile, for damage that is met by use."""
        node = self._node
        while True:
            channel, restarts = node.channel(), node.log.count(RESTARTED)
            try:
                return channel, {queue: take(channel, queue) for queue in FANNED}
            except AssertionError:
                if node.log.count(RESTARTED) == restarts:
                    raise
            channel.connection.drop()
            wait_until(node.is_serving)

    def _wrong_definitions(self) -> list[str]:
        rows = json.loads(self._control("--formatter", "json", "list_queues", "name"))
        names, expected = {each["name"] for each in rows}, {*FANNED, *self._declared}
        return [f"queues: {names ^ expected}"] if names != expected else []

    def _wrong(self, taken: Taken, is_named: bool, changed_rows: int) -> list[str]:
        """Return the faults of the messages in the queues: invented, repeated, or in another order.

        ``changed_rows``: so many rows may have another seq, so that their messages are not known as delivered.
        """
        found: list[str] = []
        for queue, got in taken.items():
            names = [name for name, _ in got]
            wrong = {
                "invented": set(names) - self._ever[queue],
                "twice": {name for name in names if names.count(name) > 1},
                "called new": {name for name, again in got if not again},
                "transient": {name for name in names if is_transient(name) and queue != QUORUM},
            }
            if is_named and len(wrong["called new"]) <= changed_rows:
                del wrong["called new"]
            if not is_named and not is_ordered(names, self._order[queue], queue == PRIORITY):
                wrong["in another order"] = set(names)
            self._order[queue] = names
            found += [
                f"{queue}: {what}: {sorted(each)[:5]}" for what, each in wrong.items() if each
            ]
        return found

    def _missing(self, taken: Taken) -> set[str]:
        known = self._known
        return {
            name
            for queue, got in taken.items()
            for name in known[queue].confirmed - known[queue].acked - {name for name, _ in got}
        }

    def _back(self, taken: Taken) -> set[str]:
        known = self._known
        return {
            name
            for queue, got in taken.items()
            for name, _ in got
            if name not in known[queue].published or name in known[queue].gone
        }

    def _leave_some(self, channel: Channel, taken: Taken) -> None:
        """Acknowledge some of the messages that were taken, and put back the others."""
        tag = 0
        for queue, got in taken.items():
            names = [name for name, _ in got]
            acked = names[: max(0, len(got) - self._rng.randrange(LEFT_MAX))]
            self._known[queue] = Known(False, set(names), set(names), set(acked))
            for number in range(1, len(acked) + 1):
                channel.send("basic.ack", delivery_tag=tag + number, multiple=False)
            tag += len(got)
        channel.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
        channel.settle(*FANNED)
        channel.connection.close()


def declare(channel: Channel, queue: str) -> None:
    channel.ok("queue.declare", queue=queue, durable=True, arguments=ARGUMENTS.get(queue, {}))


def take(channel: Channel, queue: str) -> list[tuple[str, bool]]:
    """Return name and redelivered flag of all messages of a queue, which stay unacknowledged."""
    declare(channel, queue)
    got: list[tuple[str, bool]] = []
    while (event := channel.get(queue, no_ack=False)).name == "basic.get-ok":
        got.append((name_of(event.body), event.redelivered))
    return got


def is_ordered(names: list[str], before: list[str], has_priorities: bool) -> bool:
    """Whether messages stand as they did before, and behind them new ones as their publishers have sent them."""
    places = {name: place for place, name in enumerate(before)}
    last: dict[tuple[str, int], tuple[bool, int]] = {}
    priority_before = PRIORITY_MAX
    for name in names:
        publisher, priority, number = place_of(name)
        if has_priorities and priority > priority_before:
            return False
        priority_before = priority
        place = name not in places, places.get(name, number)
        level = publisher, priority if has_priorities else 0
        if place <= last.get(level, (False, -1)):
            return False
        last[level] = place
    return True


def run(folder: Path, rng: random.Random, rounds: int) -> None:
    lives = DamagedRounds(folder, rng)
    lives.run(rounds)
    assert lives.damages > rounds // 6


def test_no_damage_after_a_kill_is_silent(tmp_path: Path, rng: random.Random) -> None:
    run(tmp_path, rng, 6)


@pytest.mark.slow
def test_no_damage_after_a_kill_is_silent_for_long(tmp_path: Path, rng: random.Random) -> None:
    run(tmp_path, rng, 300)
