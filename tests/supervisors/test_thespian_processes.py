"""Children that are processes are killed: nothing is left over, and all that should be is up again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from thespian.actors import ActorSystem

from leveret.actors.thespian.mail import Call
from leveret.supervisors.on_thespian import ThespianSupervisor
from leveret.supervisors.requests import CountChildren
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from rigs.supervision.thespian_children import (
    LEAVES_SOCKETS,
    TCP,
    UDP,
    Server,
    Worker,
    actor_system,
    note,
    noted,
    spec,
)
from rigs.waiting import wait_until

pytestmark = LEAVES_SOCKETS
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")


@pytest.fixture(params=[TCP, UDP])
def system(request: pytest.FixtureRequest) -> Iterator[ActorSystem]:
    with actor_system(request.param) as system:
        yield system


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def pid_of(system: ActorSystem, address: Any) -> int:
    """Ask a worker for its process."""
    answer = system.ask(address, "who", 10)
    assert answer is not None, "the child does not answer"
    return int(answer[1])


def is_there(pid: int) -> bool:
    """Tell whether a process exists and is more than an entry that waits to be read."""
    try:
        return state_and_parent(pid)[0] != "Z"
    except FileNotFoundError:
        return False


def state_and_parent(pid: int) -> tuple[str, int]:
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def kill_and_recover(supervisor: ThespianSupervisor, child: str) -> None:
    """Kill a child's process and wait until it and its later siblings run again."""
    before = {found: address for found, address, _ in supervisor.which_children()}
    pid = pid_of(supervisor.system, before[child])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_up_again(supervisor, before, child))


def is_up_again(supervisor: ThespianSupervisor, before: dict[Any, Any], child: str) -> bool:
    now = {found: address for found, address, _ in supervisor.which_children()}
    later = [name for name in before if name >= child]
    return all(now[name] not in (None, "restarting", before[name]) for name in later)


def test_a_killed_process_and_its_later_siblings_are_up_again(
    system: ActorSystem, path: Path
) -> None:
    supervisor = ThespianSupervisor.start(
        system, spec(path, "a", "b", "c", strategy="rest_for_one")
    )
    first = supervisor.address_of("a")

    kill_and_recover(supervisor, "b")

    assert supervisor.address_of("a") == first
    assert supervisor.count_children()["active"] == 3
    assert noted(path) == ["+a", "+b", "+c", "-c", "+b", "+c"]


def test_the_end_of_a_process_does_not_overtake_its_reason(path: Path) -> None:
    with actor_system(UDP) as system:
        supervisor = ThespianSupervisor.start(system, spec(path, "a", restart="transient"))
        address = supervisor.address_of("a")
        child = pid_of(system, address)
        _, parent = state_and_parent(child)

        os.kill(parent, signal.SIGSTOP)
        # With that to do it sees that the child has ended before it reads what the child has sent.
        system.tell(supervisor.address, Call(CountChildren()))
        system.tell(address, "quit")
        wait_until(lambda: not is_there(child))
        os.kill(parent, signal.SIGCONT)

        wait_until(lambda: supervisor.address_of("a") is None)
        assert noted(path) == ["+a", "-a"]


def test_children_are_processes_and_stopping_leaves_none(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "b"))
    pids = {pid_of(system, address) for _, address, _ in supervisor.which_children()}

    assert len(pids | {os.getpid()}) == 3
    supervisor.stop()

    wait_until(lambda: not any(map(is_there, pids)))


def test_a_child_that_does_not_stop_in_time_is_killed(system: ActorSystem, path: Path) -> None:
    child = ChildSpec("stubborn", Stubborn, ("stubborn", str(path)), shutdown=0.05)
    supervisor = ThespianSupervisor.start(system, SupervisorSpec(children=(child,)))
    pid = pid_of(system, supervisor.address_of("stubborn"))

    assert supervisor.terminate_child("stubborn") == "ok"

    wait_until(lambda: not is_there(pid))


class Stubborn(Worker):
    """Does not hear when it is told to stop."""

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "who":
            super().receiveMessage(message, sender)
        else:
            signal.pause()


@ON_LINUX
def test_no_process_outlives_a_killed_supervisor(system: ActorSystem, path: Path) -> None:
    inner = ChildSpec("inner", Supervisor, (spec(path, "a", "b"),), type="supervisor")
    outer = SupervisorSpec(
        intensity=5, children=(ChildSpec("top", Server, ("top", str(path))), inner)
    )
    supervisor = ThespianSupervisor.start(system, outer)
    first = ThespianSupervisor(system, supervisor.address_of("inner"))
    pids = [pid_of(system, address) for _, address, _ in first.which_children()]
    parents = {parent_of(pid) for pid in pids}

    os.kill(parents.pop(), signal.SIGKILL)
    wait_until(lambda: supervisor.address_of("inner") not in (None, first.address))

    wait_until(lambda: not any(map(is_there, pids)))
    assert not parents
    second = ThespianSupervisor(system, supervisor.address_of("inner"))
    assert second.count_children()["active"] == 2


@ON_LINUX
def test_no_process_outlives_a_killed_top_supervisor(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "b"))
    pids = [pid_of(system, address) for _, address, _ in supervisor.which_children()]

    os.kill(parent_of(pids[0]), signal.SIGKILL)

    wait_until(lambda: not any(map(is_there, pids)))


def parent_of(pid: int) -> int:
    """Return the process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_process_that_is_killed_while_it_starts_is_a_failed_start(
    system: ActorSystem, path: Path
) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a"))

    answer = supervisor.start_child(ChildSpec("suicide", Suicide, ("suicide", str(path))))

    assert answer[0] == "error"
    assert answer[1][0] == "killed"
    assert [child for child, _, _ in supervisor.which_children()] == ["a"]


class Suicide(Worker):
    """Its process is killed before it has started."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_that_hangs_while_it_starts_is_killed(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a"))

    hanging = ChildSpec("hanging", Hanging, ("hanging", str(path)), start_timeout_s=0.3)
    answer = supervisor.start_child(hanging)

    assert answer == ("error", ("timeout", hanging))
    assert [child for child, _, _ in supervisor.which_children()] == ["a"]
    pid = int(noted(path)[-1])
    wait_until(lambda: not is_there(pid))


class Hanging(Worker):
    """Never comes to the end of its start."""

    def __init__(self, name: str, path: str) -> None:
        note(path, str(os.getpid()))
        signal.pause()


def test_a_process_that_is_gone_when_another_child_exits_is_noticed(
    system: ActorSystem, path: Path
) -> None:
    """Thespian forgets it then without a word, which happens when one is killed at such a moment."""
    asked = spec(path, "a", "c", "e", "g").children
    killed = spec(path, "b", "d", "f", "h", shutdown="brutal_kill").children
    children = tuple(child for pair in zip(killed, asked, strict=True) for child in pair)
    supervisor = ThespianSupervisor.start(system, SupervisorSpec(children=children))

    assert supervisor.stop() == "shutdown"

    assert noted(path)[8:] == ["-g", "-e", "-c", "-a"]


@pytest.mark.slow
def test_fifty_kills_in_a_row_are_fifty_restarts(path: Path) -> None:
    flags: dict[str, Any] = {"strategy": "rest_for_one", "intensity": 1_000}
    with actor_system(TCP) as system:
        supervisor = ThespianSupervisor.start(system, spec(path, "a", "b", "c", **flags))
        for _ in range(50):
            kill_and_recover(supervisor, "b")
        supervisor.stop()

    assert noted(path) == ["+a", "+b", "+c", *(["-c", "+b", "+c"] * 50), "-c", "-b", "-a"]
