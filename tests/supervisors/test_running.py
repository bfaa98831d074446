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

from leveret.actors.runtime.signals import Crash
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
from rigs.hosted_actors import Clerk, crashes_at_start, never_ready, work
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
    with pytest.raises(
        TreeFailedError, match=r"^t > never_ready did not start: 'timeout'$"
    ) as caught:
        await entering

    assert caught.value.reason == ("shutdown", ("failed_to_start_child", "never_ready", "timeout"))
    assert (caught.value.child, caught.value.error) == ("t > never_ready", "timeout")
    assert stopped == ["first"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def unlucky() -> None:
    await asyncio.sleep(0)
    raise ValueError("no luck")


async def test_a_tree_that_gives_up_names_the_child_its_error_and_how_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tree = Tree("t", intensity=1)
    tree.subtree("below", intensity=2, period_s=60).service(unlucky)

    async with start(tree) as running:
        with pytest.raises(TreeFailedError) as caught:
            await running.wait_ended()

    error = caught.value
    assert str(error) == (
        "t > below > unlucky could not be kept running: ValueError: no luck "
        "(t > below gives up after 2 restarts in 60 s, t gives up after 1 restart in 5 s)"
    )
    assert (error.child, error.restarts) == ("t > below > unlucky", 2)
    assert (error.reason, error.error) == (
        "reached_max_restart_intensity",
        Crash(ValueError("no luck")),
    )
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "no luck"

    crashes = [text for text in caplog.messages if "ValueError" in text]
    assert len(crashes) == 6
    for text in crashes:
        first, header, place, line, last = text.splitlines()
        assert first == "actor crashed actor=unlucky reason=Crash(ValueError: no luck)"
        assert header == "Traceback (most recent call last):"
        assert place.startswith(f'  File "{__file__}"')
        assert line.strip() == 'raise ValueError("no luck")'
        assert last == "ValueError: no luck"


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_start_that_crashes_is_one_record_and_names_the_child(
    isolation: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tree = Tree("t")
    tree.service(waits_for_ready=True, isolation=isolation)(crashes_at_start)

    with pytest.raises(TreeFailedError, match="t > crashes_at_start did not start: KeyError: 'x'"):
        async with start(tree):
            raise AssertionError

    assert len([text for text in caplog.messages if "KeyError" in text]) == 1


async def test_a_group_of_errors_names_each(caplog: pytest.LogCaptureFixture) -> None:
    tree = Tree("t", intensity=0)

    @tree.service
    async def several() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(unlucky())

    async with start(tree) as running:
        with pytest.raises(TreeFailedError, match="unhandled errors in a TaskGroup"):
            await running.wait_ended()

    (crash,) = [text for text in caplog.messages if text.startswith("actor crashed")]
    assert "In the group ValueError: no luck (most recent call last):" in crash
    assert "in unlucky" in crash


async def test_a_function_that_returns_no_coroutine_says_so() -> None:
    tree = Tree("t", intensity=0)
    tree.service(id="three")(lambda: 3)  # type: ignore[arg-type, return-value]

    async with start(tree) as running:
        with pytest.raises(TreeFailedError, match=r"\(async def\), but .* has returned 3"):
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
            await asyncio.Event().wait()
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
        await asyncio.Event().wait()
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
