"""The same supervisor, the same specs, on four system bases of Thespian.

Tests: actors/thespian/start.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from thespian.actors import Actor, ActorSystem, ChildActorExited

from leveret.actors.runtime.signals import Crash, StartError
from leveret.actors.thespian.mail import Call
from leveret.actors.thespian.start import start, stop
from leveret.core.errors import ActorError
from leveret.supervisors.on_thespian import ThespianSupervisor
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from rigs.supervision.thespian_children import (
    ASYNCIO,
    BASES,
    LEAVES_SOCKETS,
    UDP,
    Server,
    Worker,
    actor_system,
    noted,
    spec,
)
from rigs.waiting import wait_until

pytestmark = LEAVES_SOCKETS


@pytest.fixture(params=BASES)
def system(request: pytest.FixtureRequest) -> Iterator[ActorSystem]:
    with actor_system(request.param) as system:
        yield system


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def crash(supervisor: ThespianSupervisor, child: str) -> None:
    """Let a child fail and wait until all run again."""
    old = supervisor.address_of(child)
    supervisor.system.tell(old, "boom")
    wait_until(lambda: supervisor.address_of(child) not in (None, old))
    wait_until(lambda: all_run(supervisor))


def all_run(supervisor: ThespianSupervisor) -> bool:
    counts = supervisor.count_children()
    return counts["active"] == counts["specs"]


@pytest.mark.parametrize(
    ("strategy", "trace"),
    [
        ("one_for_one", ["!b", "+b"]),
        ("rest_for_one", ["!b", "-c", "+b", "+c"]),
        ("one_for_all", ["!b", "-c", "-a", "+a", "+b", "+c"]),
    ],
)
def test_a_handlers_exception_ends_the_child_at_once_and_the_strategy_says_who_is_restarted(
    system: ActorSystem, path: Path, strategy: str, trace: list[str]
) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "b", "c", strategy=strategy))

    crash(supervisor, "b")
    reason = supervisor.stop()

    assert noted(path) == ["+a", "+b", "+c", *trace, "-c", "-b", "-a"]
    assert reason == "shutdown"


def test_children_live_in_the_place_the_base_gives_them_and_answer(
    system: ActorSystem, path: Path
) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "b"))

    names = [system.ask(address, "who", 10)[0] for _, address, _ in supervisor.which_children()]

    assert names == ["b", "a"]
    assert supervisor.count_children() == {
        "specs": 2, "active": 2, "supervisors": 0, "workers": 2,
    }  # fmt: skip


def test_a_child_that_quits_is_restarted_by_its_kind(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", restart="transient"))

    system.tell(supervisor.address_of("a"), "quit")
    wait_until(lambda: supervisor.address_of("a") is None)

    assert supervisor.which_children() == [("a", None, "worker")]
    answer, address = supervisor.restart_child("a")
    assert answer == "ok"
    assert address == supervisor.address_of("a")
    assert noted(path) == ["+a", "-a", "+a"]


def test_one_restart_too_many_ends_the_supervisor_and_its_parent_starts_it_afresh(
    system: ActorSystem, path: Path
) -> None:
    inner = spec(path, "a", "b", intensity=0)
    child = ChildSpec("inner", Supervisor, (inner,), type="supervisor")
    outer = ThespianSupervisor.start(system, SupervisorSpec(intensity=5, children=(child,)))
    first = ThespianSupervisor(system, outer.address_of("inner"))

    system.tell(first.address_of("b"), "boom")
    wait_until(lambda: outer.address_of("inner") not in (None, first.address))

    second = ThespianSupervisor(system, outer.address_of("inner"))
    assert second.count_children()["active"] == 2
    assert noted(path) == ["+a", "+b", "!b", "-a", "+a", "+b"]


def test_a_child_that_cannot_start_stops_those_before_it(system: ActorSystem, path: Path) -> None:
    path.write_text("no c\n")

    with pytest.raises(StartError) as caught:
        ThespianSupervisor.start(system, spec(path, "a", "b", "c", "d"))

    why, what = caught.value.reason
    assert (why, what[:2]) == ("shutdown", ("failed_to_start_child", "c"))
    assert what[2] == Crash(OSError("c cannot start"))
    assert noted(path)[2:] == ["+a", "+b", "-b", "-a"]


def test_dynamic_children_have_arguments_of_their_own_and_are_stopped_by_address(
    system: ActorSystem, path: Path
) -> None:
    template = ChildSpec("template", Worker)
    dynamic = SupervisorSpec("simple_one_for_one", 5, children=(template,))
    supervisor = ThespianSupervisor.start(system, dynamic)

    _, ann = supervisor.start_child(("ann", str(path)))
    _, bob = supervisor.start_child(("bob", str(path)))
    system.tell(ann, "boom")
    wait_until(lambda: noted(path).count("+ann") == 2)
    answer = supervisor.terminate_child(bob)

    assert answer == "ok"
    wait_until(lambda: supervisor.count_children()["active"] == 1)
    assert noted(path) == ["+ann", "+bob", "!ann", "+ann", "-bob"]


def test_an_exit_that_is_told_twice_is_one_restart(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", intensity=1, period_s=1e9))
    old = supervisor.address_of("a")

    crash(supervisor, "a")
    for _ in range(3):
        system.tell(supervisor.address, ChildActorExited(old))

    assert supervisor.count_children()["active"] == 1
    assert noted(path) == ["+a", "!a", "+a"]


def test_brutal_kill_does_not_ask_the_child(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "b", shutdown="brutal_kill"))

    assert supervisor.terminate_child("b") == "ok"
    assert supervisor.stop() == "shutdown"

    assert noted(path) == ["+a", "+b"]


class Stuck(Actor):
    """Blocks in a handler until it is let go."""

    begun: ClassVar = threading.Event()
    let_go: ClassVar = threading.Event()
    has_returned: ClassVar = threading.Event()

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "block":
            self.begun.set()
            self.let_go.wait(10)
            self.has_returned.set()


@pytest.mark.parametrize("shutdown", [0.02, "brutal_kill"])
def test_a_child_that_is_stuck_is_killed_where_actors_have_threads(shutdown: Any) -> None:
    for event in (Stuck.begun, Stuck.let_go, Stuck.has_returned):
        event.clear()
    with actor_system(ASYNCIO) as system:
        child = ChildSpec("a", Stuck, shutdown=shutdown)
        supervisor = ThespianSupervisor.start(system, SupervisorSpec(children=(child,)))
        stuck = supervisor.address_of("a")
        system.tell(stuck, "block")
        assert Stuck.begun.wait(10)

        assert supervisor.terminate_child("a") == "ok"
        assert supervisor.restart_child("a") != stuck
        assert supervisor.stop() == "shutdown"

        assert not Stuck.has_returned.is_set()
        Stuck.let_go.set()
        assert Stuck.has_returned.wait(10)


def test_otp_actors_are_children_as_well_with_timers_calls_and_terminate(
    system: ActorSystem, path: Path
) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "b", worker=Server))
    address = supervisor.address_of("b")

    greeting = system.ask(address, "hello", 10)
    assert greeting[:2] == ("hello", "b")
    assert greeting[2] == address
    system.tell(address, "alarm")
    wait_until(lambda: system.ask(address, Call("alarmed"), 10))
    crash(supervisor, "b")
    supervisor.stop()

    assert noted(path)[2:] == ["-b:Crash(ValueError:", "boom)", "+b", "-b:shutdown", "-a:shutdown"]


def test_a_child_that_ignores_its_start_is_kept_without_an_address(
    system: ActorSystem, path: Path
) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a", "unwilling", worker=Server))

    assert supervisor.address_of("unwilling") is None
    assert supervisor.count_children()["active"] == 1


def test_a_single_actor_starts_and_stops_under_the_same_rules(
    system: ActorSystem, path: Path
) -> None:
    address = start(system, Server, "alone", str(path))

    assert stop(system, address) == "shutdown"

    assert noted(path) == ["+alone", "-alone:shutdown"]
    with pytest.raises(StartError, match="ignore"):
        start(system, Server, "unwilling", str(path))


def test_a_supervisor_that_is_gone_is_an_error_for_who_asks(
    system: ActorSystem, path: Path
) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a"))
    supervisor.stop()

    with pytest.raises(ActorError, match="has not answered"):
        supervisor.ask(Call("anything"), timeout_s=0.2)


def test_specs_and_children_come_and_go_by_request(system: ActorSystem, path: Path) -> None:
    supervisor = ThespianSupervisor.start(system, spec(path, "a"))
    late = ChildSpec("late", Worker, ("late", str(path)))

    answer: Any = supervisor.start_child(late)
    assert answer == ("ok", supervisor.address_of("late"))
    assert supervisor.start_child(late) == ("error", ("already_started", answer[1]))
    assert supervisor.get_childspec("late") == ("ok", late)
    assert supervisor.delete_child("late") == ("error", "running")
    assert supervisor.terminate_child("late") == "ok"
    assert supervisor.delete_child("late") == "ok"
    assert [child[0] for child in supervisor.which_children()] == ["a"]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(lambda request: None, id="was lost"),
        pytest.param(
            lambda request: request, id="came back, to a mailbox of the supervisor's port"
        ),
        pytest.param(lambda request: ("hello", "b"), id="got another's mail for an answer"),
    ],
)
def test_over_udp_a_request_that_is_not_answered_is_sent_again(
    path: Path, first: Callable[[Any], Any]
) -> None:
    with actor_system(UDP) as system:
        supervisor = ThespianSupervisor.start(system, spec(path, "a"))
        sent: list[float] = []

        class Faulty:
            @staticmethod
            @contextmanager
            def private() -> Iterator[Any]:
                with system.private() as mailbox:
                    yield Faulty.Mailbox(mailbox)

            class Mailbox:
                def __init__(self, mailbox: Any) -> None:
                    self._mailbox = mailbox

                def ask(self, address: Any, message: Any, timeout_s: float) -> Any:
                    sent.append(timeout_s)
                    if not sent[1:]:
                        return first(message)
                    return self._mailbox.ask(address, message, timeout_s)

        answer = ThespianSupervisor(Faulty(), supervisor.address).count_children()

        assert answer == supervisor.count_children()
        assert sent == [3.0, 3.0]
        supervisor.stop()
