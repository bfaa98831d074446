"""Programs as actors."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.actors.processes.command import LINE_BYTES_MAX, Command, CommandSpec, Lines
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import Crash, Started, StartFailed
from leveret.core.errors import ActorError
from rigs.nodes import clean_environment
from rigs.waiting import eventually, wait_until

Program = Callable[..., Awaitable[Ref]]


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    runtime = Runtime()
    yield runtime
    await runtime.shutdown(5)
    assert runtime.actor_count == 0


@pytest.fixture
def outcome(runtime: Runtime) -> Callable[..., Awaitable[Any]]:
    async def start(*argv: str, more: tuple[str, ...] = (), **options: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        args = (CommandSpec(argv, **options), *more)
        runtime.start_link(None, Command, args, future.set_result, "program")
        return await future

    return start


@pytest.fixture
def program(outcome: Callable[..., Awaitable[Any]]) -> Program:
    async def start(*argv: str, **options: Any) -> Ref:
        result = await outcome(*argv, **options)
        assert type(result) is Started, result
        return result.ref

    return start


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    done = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()[:1] not in ("", "Z")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", "normal"),
        ("exit 3", ("exit_status", 3)),
        ("kill -KILL $$", "killed"),
        ("kill -TERM $$", ("signal", "SIGTERM")),
    ],
)
async def test_it_ends_as_the_program_ends(
    runtime: Runtime, program: Program, script: str, reason: Any
) -> None:
    assert await runtime.join(await program("sh", "-c", f"sleep 0; {script}")) == reason


async def test_other_statuses_may_be_normal(runtime: Runtime, program: Program) -> None:
    grep = await program("sh", "-c", "sleep 0; exit 1", ok_statuses=(0, 1))

    assert await runtime.join(grep) == "normal"


async def test_further_arguments_go_behind(
    runtime: Runtime, program: Program, tmp_path: Path
) -> None:
    touch = await program("touch", more=("here",), cwd=tmp_path)

    await runtime.join(touch)

    assert (tmp_path / "here").exists()


async def test_environment_and_folder_are_given(
    runtime: Runtime, program: Program, tmp_path: Path
) -> None:
    script = 'printf %s "$GREETING$HOME" > greeting'
    await runtime.join(await program("sh", "-c", script, cwd=tmp_path, env={"GREETING": "hello "}))

    assert (tmp_path / "greeting").read_text() == "hello " + os.environ["HOME"]


@pytest.mark.parametrize("name", ["no-such-program", "./here", "/etc/passwd"])
async def test_a_program_that_is_not_there_fails_the_start(outcome: Any, name: str) -> None:
    result = await outcome(name)

    assert type(result) is StartFailed
    assert isinstance(result.reason, Crash)
    assert result.reason.kind is FileNotFoundError


async def test_it_is_ready_when_it_says_so(
    runtime: Runtime, outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script = "echo starting; echo open on port 80; sleep 1000"
    with caplog.at_level(logging.INFO):
        result = await outcome("sh", "-c", script, output="log", ready_text="open on")

    assert type(result) is Started
    assert result.value == result.ref.cell.actor.os_pid
    lines = [record for record in caplog.records if hasattr(record, "command")]
    assert [line.getMessage() for line in lines] == ["starting", "open on port 80"]
    assert [line.command for line in lines] == ["program", "program"]  # type: ignore[attr-defined]


async def test_one_that_ends_before_it_is_ready_has_not_started(outcome: Any) -> None:
    result = await outcome("sh", "-c", "echo no; exit 2", output="log", ready_text="yes")

    assert result == StartFailed(("exit_status", 2))


async def test_all_output_is_logged_before_the_end(
    runtime: Runtime, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        script = "echo out; echo err >&2; printf '\\377 unfinished'"
        await runtime.join(await program("sh", "-c", script, output="log"))

    told = [record.getMessage() for record in caplog.records if hasattr(record, "command")]
    assert told == ["out", "err", "\\xff unfinished"]


def test_lines_that_are_too_long_are_cut() -> None:
    lines: list[str] = []
    reader = Lines(lines.append, lambda: lines.append("END"))

    reader.data_received(b"a" * LINE_BYTES_MAX + b"bc\r\nd")
    reader.data_received(b"e")
    reader.connection_lost(None)

    assert lines == ["a" * LINE_BYTES_MAX + "bc", "de", "END"]
    lines.clear()
    reader = Lines(lines.append, lambda: lines.append("END"))
    reader.data_received(b"a" * (LINE_BYTES_MAX + 1))
    assert lines == ["a" * LINE_BYTES_MAX]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A started process obeys SIGINT, even if the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_gets_its_signal_and_ends_with_the_reason(
    runtime: Runtime, program: Program, tmp_path: Path, number: int
) -> None:
    name = signal.Signals(number).name.removeprefix("SIG")
    script = f"trap 'echo {name} > got; exit 7' {name}; echo up; while :; do sleep 0.01; done"
    one = await program(
        "sh", "-c", script, cwd=tmp_path, output="log", ready_text="up", stop_signal=number
    )

    runtime.exit(one, ("shutdown", "evening"))

    assert await runtime.join(one) == ("shutdown", "evening")
    assert (tmp_path / "got").read_text() == f"{name}\n"


async def test_what_it_has_started_ends_with_it(
    runtime: Runtime, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        one = await program("sh", "-c", "sleep 1000 & echo pid $!; exit 0", output="log")
        assert await runtime.join(one) == "normal"

    (line,) = (record.getMessage() for record in caplog.records if hasattr(record, "command"))
    await eventually(lambda: not is_running(int(line.split()[1])))


async def test_shutdown_is_bounded_whatever_the_program_does(
    runtime: Runtime, program: Program
) -> None:
    script = "trap '' TERM INT; echo up; while :; do sleep 1; done"
    one = await program("sh", "-c", script, output="log", ready_text="up")
    pid = one.cell.actor.os_pid

    await runtime.shutdown(0.1)

    assert not is_running(pid)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"argv": ()}, "a list of program and arguments"),
        ({"argv": "ls -l"}, "a list of program and arguments"),
        ({"argv": ["ls"], "output": "tee"}, "must be one of inherit, log, discard"),
        ({"argv": ["ls"], "ready_text": "up"}, "needs output='log'"),
    ],
)
def test_wrong_specs_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ActorError, match=text):
        CommandSpec(**given)


PARENT = """
import asyncio, sys
from leveret.actors.processes.command import Command, CommandSpec, LINE_BYTES_MAX, Lines
from leveret.actors.processes.host import ProcessHost
from leveret.actors.runtime.runtime import Runtime

async def main():
    runtime = Runtime()
    one = runtime.spawn(Command, CommandSpec(["sleep", "1000"]))
    started = asyncio.get_running_loop().create_future()
    args = ("rigs.hosted_actors:Clerk", ())
    other = runtime.start_link(None, ProcessHost, args, started.set_result)
    await started
    print(one.cell.actor.os_pid, other.cell.actor.os_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_kill_9_of_the_parent_leaves_no_orphan(tmp_path: Path) -> None:
    environment = clean_environment(PYTHONPATH=str(Path(__file__).parents[2]))
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        parent.kill()

    wait_until(lambda: not any(map(is_running, pids)))
