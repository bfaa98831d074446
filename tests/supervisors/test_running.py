"""Trees that run in an event loop, and as programs.

Tests: actors/processes/functions.py, actors/service.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from thespian.actors import Actor

from leveret.actors.service import current_service
from leveret.core.errors import ActorError
from leveret.supervisors import (
    ChildError,
    ChildSpec,
    SupervisorSpec,
    Tree,
    TreeFailedError,
    ready,
    start,
)
from leveret.testing.virtual_clock import VirtualClock
from rigs.hosted_actors import Clerk, never_ready, work
from rigs.nodes import clean_environment
from rigs.waiting import eventually


async def forever() -> None:
    await asyncio.Event().wait()


class Echo(Actor):
    def receiveMessage(self, message: Any, sender: Any) -> None:
        if isinstance(message, list):
            message.append("heard")


async def test_coroutines_actors_programs_and_processes_in_one_tree() -> None:
    tree = Tree("shop", intensity=5)
    tree.service(forever)
    tree.actor("echo", Echo)
    tree.actor("clerk", Clerk, isolation="process")
    tree.command("sleeper", ["sleep", "1000"])
    tree.subtree("below").service(id="deep")(forever)
    tree.service(id="apart", isolation="process", waits_for_ready=True)(work)

    async with start(tree) as running:
        paths = [node.path for node in running.nodes()]
        heard: list[str] = []
        running.send("echo", heard)
        pid = await running.call("clerk", ("pid",), 60)
        await eventually(lambda: heard)
        sleeper = running.find("sleeper").cell.actor.os_pid

    assert paths == [
        "shop",
        "shop > forever",
        "shop > echo",
        "shop > clerk",
        "shop > sleeper",
        "shop > below",
        "shop > below > deep",
        "shop > apart",
    ]
    for gone in (pid, sleeper):
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


async def test_the_next_child_waits_until_the_one_before_is_ready() -> None:
    order: list[str] = []
    tree = Tree("t")

    @tree.service(waits_for_ready=True)
    async def first() -> None:
        order.append("first begins")
        await asyncio.sleep(0)
        order.append("first is ready")
        ready()
        await forever()

    @tree.service
    async def second() -> None:
        order.append("second")
        await forever()

    async with start(tree):
        await eventually(lambda: len(order) == 3)

    assert order == ["first begins", "first is ready", "second"]


def test_only_services_are_ready() -> None:
    with pytest.raises(ActorError, match="not the coroutine of a service"):
        ready()


async def test_a_service_knows_itself() -> None:
    tree = Tree("t")
    seen: list[Any] = []

    @tree.service
    async def one() -> None:
        seen.append(current_service().ref)
        await forever()

    async with start(tree) as running:
        await eventually(lambda: seen)
        assert seen == [running.find("one")]


async def test_a_start_that_fails_leaves_nothing() -> None:
    clock = VirtualClock()
    tree = Tree("t")
    stopped: list[str] = []

    @tree.service
    async def first() -> None:
        try:
            await forever()
        finally:
            stopped.append("first")

    tree.service(waits_for_ready=True, start_timeout_s=5)(never_ready)

    async def enter() -> None:
        async with start(tree, clock=clock):
            raise AssertionError

    entering = asyncio.ensure_future(enter())
    await clock.advance(6)
    with pytest.raises(TreeFailedError) as caught:
        await entering

    assert caught.value.reason == ("shutdown", ("failed_to_start_child", "never_ready", "timeout"))
    assert stopped == ["first"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_tree_that_gives_up_says_so() -> None:
    tree = Tree("t", intensity=1)

    @tree.service
    async def unlucky() -> None:
        await asyncio.sleep(0)
        raise ValueError("no luck")

    async with start(tree) as running:
        with pytest.raises(TreeFailedError, match="reached_max_restart_intensity"):
            await running.wait_ended()


async def test_a_tree_that_is_done_is_done() -> None:
    tree = Tree("t", auto_shutdown="any_significant")

    @tree.service(restart="transient", significant=True)
    async def job() -> None:
        await asyncio.sleep(0)

    async with start(tree) as running:
        assert await running.wait_ended() == "shutdown"


async def test_a_pool_has_its_limit_and_arguments() -> None:
    seen: list[Any] = []

    async def one(*args: Any) -> None:
        seen.append(args)
        await forever()

    tree = Tree("t")
    tree.pool("pool", one, "common", children_max=2)
    async with start(tree) as running:
        await running.start_child("pool", 1)
        await running.start_child("pool", 2, 3)
        with pytest.raises(ChildError) as caught:
            await running.start_child("pool", 4)
        await eventually(lambda: len(seen) == 2)

    assert caught.value.reason == "max_children"
    assert seen == [("common", 1), ("common", 2, 3)]


async def test_who_is_not_there_is_not_found() -> None:
    async with start(SupervisorSpec(children=(ChildSpec("a", Echo),))) as running:
        assert running.find("a").is_alive
        assert running.find("") is running.root
        for path in ("b", "a > b"):
            with pytest.raises(ActorError, match="no actor runs at"):
                running.send(path, None)


async def test_an_error_in_the_block_stops_the_tree() -> None:
    tree = Tree("t")
    tree.service(forever)

    with pytest.raises(ZeroDivisionError):
        async with start(tree) as running:
            raise ZeroDivisionError

    assert running.runtime.actor_count == 0


# As programs.

PROGRAM = """
import asyncio, sys
from leveret.supervisors import Tree, run

tree = Tree("program", intensity=1)

@tree.service(shutdown=0.1 if "unlucky" in sys.argv else 60.0)
async def stubborn() -> None:
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            print("not yet", flush=True)
            if "polite" in sys.argv:
                raise

@tree.service
async def other() -> None:
    if "unlucky" in sys.argv:
        await asyncio.sleep(0)
        raise ValueError("no luck")
    try:
        await asyncio.sleep(1000)
    finally:
        print("other stopped", flush=True)

tree.command("sleeper", ["sleep", "1000"])

run(tree, on_started=lambda running: print(running.find("sleeper").cell.actor.os_pid, flush=True))
print("end")
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    (tmp_path / "program.py").write_text(PROGRAM)
    running: list[subprocess.Popen[str]] = []

    def started(how: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "program.py", how],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield started
    for process in running:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_program_in_order(program: Any, number: signal.Signals) -> None:
    process = program("polite")
    sleeper = int(line(process))

    process.send_signal(number)
    out, errors = process.communicate(timeout=30)

    assert (out, errors, process.returncode) == ("other stopped\nnot yet\nend\n", "", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)


def test_a_second_signal_kills_what_is_left(program: Any) -> None:
    process = program("stubborn")
    line(process)

    process.send_signal(signal.SIGTERM)
    assert [line(process), line(process)] == ["other stopped", "not yet"]
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)

    assert out.endswith("end\n")
    assert "second signal, killing all actors signal=SIGTERM" in errors
    assert process.returncode == 0


def test_a_program_that_cannot_go_on_fails(program: Any) -> None:
    process = program("unlucky")

    _, errors = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "service swallowed its cancellation label=stubborn" in errors
    assert "reached_max_restart_intensity" in errors
