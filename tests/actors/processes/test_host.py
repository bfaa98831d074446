"""Actors in processes of their own.

Tests: actors/processes/die_with_parent.py, actors/processes/hosted.py, actors/processes/target.py,
    core/small_set.py
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.sendable import WireError
from leveret.actors.processes import link
from leveret.actors.processes.host import ProcessHost
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import CallExit, Crash, Exit, Ignored, Started, StartFailed
from leveret.core import small_set
from leveret.core.errors import ActorError
from rigs.hosted_actors import (
    Clerk,
    Declines,
    Dies,
    Fails,
    Order,
    Slow,
    Trapper,
    Unmarked,
)
from rigs.waiting import eventually

Hosted = Callable[..., Awaitable[Ref]]


class PatientRuntime(Runtime):
    """Waits as long as a busy machine needs."""

    async def call(self, to: Ref, request: Any, timeout_s: float | None = 60.0) -> Any:
        return await super().call(to, request, timeout_s)


class Notes(OtpActor):
    """Records its mail."""

    trap_exits = True

    def init(self) -> None:
        self.seen: list[Any] = []

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if type(message) is Exit and sender is None:
            self.stop(message.reason)
        self.seen.append(message)


class Frail(OtpActor):
    """Dies with the actor it is linked with."""


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    runtime = PatientRuntime()
    yield runtime
    await runtime.shutdown(5)
    assert runtime.actor_count == 0


@pytest.fixture
def outcome(runtime: Runtime) -> Callable[..., Awaitable[Any]]:
    async def start(actor_class: Any, *args: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        runtime.start_link(None, ProcessHost, (actor_class, args), future.set_result)
        return await future

    return start


@pytest.fixture
def hosted(outcome: Callable[..., Awaitable[Any]]) -> Hosted:
    async def start(actor_class: Any, *args: Any) -> Ref:
        result = await outcome(actor_class, *args)
        assert type(result) is Started, result
        return result.ref

    return start


@pytest.fixture
def notes(runtime: Runtime) -> Ref:
    return runtime.spawn(Notes)


def seen(notes: Ref) -> list[Any]:
    return notes.cell.actor.seen


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


# Messages.


async def test_it_runs_in_another_process(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)

    pid = await runtime.call(clerk, ("pid",))

    assert pid == clerk.cell.actor.os_pid != os.getpid()


SENDABLE = [
    None,
    True,
    -7,
    2**63,
    1.5,
    "Grüße",
    b"\0",
    [1, [2]],
    (1, (2, [])),
    {"a": (1,), 3: None},
]
SENDABLE += [Order("tea", 3), {"orders": [Order("tea", 3)]}]
UNSENDABLE = [object(), {1, 2}, Unmarked("tea"), 2**64, len, Clerk]


async def test_what_goes_there_comes_back_equal(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)

    back = [await runtime.call(clerk, ("echo", value)) for value in SENDABLE]

    assert back == SENDABLE
    assert list(map(type, back)) == list(map(type, SENDABLE))


async def test_what_cannot_go_there_is_the_senders_error(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    watchers = len(small_set.items(clerk.cell.watchers))

    for value in UNSENDABLE:
        with pytest.raises(WireError, match="cannot go to another process"):
            runtime.send(clerk, ("echo", value))
        with pytest.raises(WireError, match="cannot go to another process"):
            await runtime.call(clerk, ("echo", value))

    assert await runtime.call(clerk, ("echo", 1)) == 1
    assert (
        len(small_set.items(clerk.cell.watchers)) == watchers
    )  # of the failed calls nothing is left


async def test_addresses_keep_their_identity(runtime: Runtime, hosted: Hosted, notes: Ref) -> None:
    clerk = await hosted(Clerk, None, notes)

    await eventually(lambda: seen(notes))
    assert seen(notes) == [("here is", clerk)]
    assert await runtime.call(clerk, ("echo", [clerk, notes])) == [clerk, notes]


async def test_an_actor_beside_it_can_be_reached_and_ended(
    runtime: Runtime, hosted: Hosted
) -> None:
    clerk = await hosted(Clerk)
    other = await runtime.call(clerk, ("spawn",))

    assert await runtime.call(other, ("pid",)) == clerk.cell.actor.os_pid
    ending = asyncio.ensure_future(runtime.join(other))
    await asyncio.sleep(0)
    runtime.send(other, ("stop", ("shutdown", "enough")))
    assert await ending == ("shutdown", "enough")
    assert clerk.is_alive


async def test_two_processes_reach_each_other(runtime: Runtime, hosted: Hosted, notes: Ref) -> None:
    one, other = await hosted(Clerk), await hosted(Clerk)

    runtime.send(one, ("tell", other, ("tell", notes, ("from", one, other))))

    await eventually(lambda: seen(notes))
    assert seen(notes) == [("from", one, other)]


async def test_mail_of_one_sender_to_a_hosted_actor_stays_in_order(
    runtime: Runtime, hosted: Hosted, notes: Ref
) -> None:
    clerk = await hosted(Clerk)
    for number in range(500):
        runtime.send(clerk, ("tell", notes, number))

    await eventually(lambda: len(seen(notes)) == 500)
    assert seen(notes) == list(range(500))


async def test_an_inline_call_is_refused(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)

    with pytest.raises(ActorError, match="cannot be called inline"):
        runtime.call_inline(clerk, ("pid",))
    assert clerk.is_alive


# Starts.


async def test_the_start_is_acknowledged_with_its_value(outcome: Any) -> None:
    assert (await outcome(Clerk, ("hello", 1))).value == ("hello", 1)


async def test_arguments_may_be_of_classes_that_the_actors_module_marks(outcome: Any) -> None:
    assert (await outcome("rigs.hosted_actors:Clerk", Order("tea", 3))).value == Order("tea", 3)


async def test_a_start_is_waited_for(outcome: Any) -> None:
    assert (await outcome(Slow)).value == "at last"


async def test_it_may_decline(outcome: Any) -> None:
    assert type(await outcome(Declines)) is Ignored


@pytest.mark.parametrize(
    ("actor_class", "args", "kind", "text"),
    [
        (Fails, ("no paper",), ValueError, "no paper"),
        (Clerk, (1, None, 3), TypeError, "positional arguments"),
        (Clerk, (object(),), WireError, "cannot go to another process: object"),
        ("actors.nobody:Clerk", (), ModuleNotFoundError, "actors.nobody"),
        ("rigs.hosted_actors:Nobody", (), AttributeError, "Nobody"),
        ("rigs.hosted_actors:log", (), ActorError, "not an actor class"),
        ("Clerk", (), ActorError, "package.module:name"),
        (3, (), ActorError, "a class, a function or a name"),
    ],
)
async def test_a_start_that_fails_says_why(
    outcome: Any, actor_class: Any, args: tuple[Any, ...], kind: type, text: str
) -> None:
    result = await outcome(actor_class, *args)

    assert type(result) is StartFailed
    assert isinstance(result.reason, Crash)
    assert result.reason.kind is kind
    assert text in result.reason.text


async def test_a_class_in_a_function_is_refused(outcome: Any) -> None:
    class Local(OtpActor):
        pass

    assert "cannot import it" in (await outcome(Local)).reason.text


async def test_kill_9_while_it_starts_is_a_failed_start(outcome: Any) -> None:
    assert (await outcome(Dies)).reason == ("process_ended", -signal.SIGKILL)


async def test_no_program_is_a_failed_start(outcome: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    assert (await outcome(Clerk)).reason.kind is FileNotFoundError


# Ends.


async def test_kill_9_reaches_monitors_and_links_as_noconnection(
    runtime: Runtime, hosted: Hosted, notes: Ref
) -> None:
    clerk = await hosted(Clerk)
    other = await runtime.call(clerk, ("spawn",))
    runtime.monitor(notes, clerk)
    runtime.monitor(notes, other)
    runtime.link(notes, clerk)

    os.kill(clerk.cell.actor.os_pid, signal.SIGKILL)

    await eventually(lambda: len(seen(notes)) == 3)
    assert [note.reason for note in seen(notes)] == ["noconnection"] * 3
    assert not clerk.is_alive
    assert not other.is_alive


async def test_a_call_under_way_fails_with_the_process(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    asking = asyncio.ensure_future(runtime.call(clerk, ("later",), None))
    await runtime.call(clerk, ("pid",))

    os.kill(clerk.cell.actor.os_pid, signal.SIGKILL)

    with pytest.raises(CallExit) as caught:
        await asking
    assert caught.value.reason == "noconnection"


async def test_a_process_that_reads_nothing_is_cut_off(
    runtime: Runtime, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(mail_bytes_max=2**20, unsent_bytes_max=2**20))
    clerk = await hosted(Clerk)
    pid = clerk.cell.actor.os_pid
    os.kill(pid, signal.SIGSTOP)
    ending = asyncio.ensure_future(runtime.join(clerk))
    await asyncio.sleep(0)

    for _ in range(40):
        runtime.send(clerk, ("echo", bytes(64 * 1024)))

    assert await ending == "noconnection"
    assert not is_running(pid)


async def test_a_process_that_is_stopped_for_a_while_loses_nothing(
    runtime: Runtime, hosted: Hosted, notes: Ref
) -> None:
    clerk = await hosted(Clerk)
    pid = clerk.cell.actor.os_pid
    os.kill(pid, signal.SIGSTOP)
    for number in range(300):
        runtime.send(clerk, ("tell", notes, (number, bytes(100_000))))
    waiting = asyncio.ensure_future(runtime.written(clerk))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    os.kill(pid, signal.SIGCONT)

    await waiting
    await eventually(lambda: len(seen(notes)) == 300)
    assert [number for number, _ in seen(notes)] == list(range(300))


async def test_a_message_that_is_too_long_is_the_senders_error(
    runtime: Runtime, hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LIMITS", LinkLimits(mail_bytes_max=100_000))
    clerk = await hosted(Clerk)

    with pytest.raises(WireError, match=r"message of 1000\d\d bytes, limit 100000"):
        runtime.send(clerk, ("echo", bytes(100_000)))


@pytest.mark.parametrize("reason", ["normal", "shutdown", ("shutdown", "x"), ["any", {"a": 1}]])
async def test_it_ends_for_the_reason_it_ended_there(
    runtime: Runtime, hosted: Hosted, reason: Any
) -> None:
    clerk = await hosted(Clerk)
    pid = clerk.cell.actor.os_pid
    runtime.send(clerk, ("stop", reason))

    assert await runtime.join(clerk) == reason
    assert not is_running(pid)


async def test_a_crash_keeps_class_text_and_traceback(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)

    with pytest.raises(CallExit) as caught:
        await runtime.call(clerk, ("remote error",))

    crash = caught.value.reason
    assert isinstance(crash, Crash)
    assert (crash.kind, crash.text) == (LookupError, "no such article")
    assert "hosted_actors.py" in crash.traceback


async def test_a_stop_lets_it_clean_up(runtime: Runtime, hosted: Hosted, notes: Ref) -> None:
    trapper = await hosted(Trapper, notes)
    pid = trapper.cell.actor.os_pid

    runtime.exit(trapper, "shutdown")

    assert await runtime.join(trapper) == "shutdown"
    assert seen(notes) == [("stopped", "shutdown")]
    assert not is_running(pid)


async def test_a_kill_ends_the_process_whatever_it_does(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    pid = clerk.cell.actor.os_pid
    runtime.send(clerk, ("hang",))

    runtime.exit(clerk, "kill")

    assert await runtime.join(clerk) == "killed"
    await eventually(lambda: not is_running(pid))  # dead at once, and soon no zombie


async def test_shutdown_is_bounded_and_leaves_no_process(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    pid = clerk.cell.actor.os_pid
    runtime.send(clerk, ("hang",))

    await runtime.shutdown(0.2)

    assert not is_running(pid)


async def test_links_go_both_ways(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    frail, firm = runtime.spawn(Frail), await hosted(Clerk)
    runtime.send(clerk, ("link", frail))
    runtime.send(firm, ("link", clerk))
    await runtime.call(clerk, ("pid",))
    await runtime.call(firm, ("pid",))

    ends = asyncio.gather(runtime.join(clerk), runtime.join(firm))
    await asyncio.sleep(0)
    runtime.exit(frail, "tired")

    assert await ends == ["tired", "tired"]


async def test_an_actor_there_monitors_one_here(
    runtime: Runtime, hosted: Hosted, notes: Ref
) -> None:
    clerk, frail = await hosted(Clerk), runtime.spawn(Frail)
    runtime.send(clerk, ("watch", frail, notes))
    await runtime.call(clerk, ("pid",))

    runtime.exit(frail, ("gone", 1))

    await eventually(lambda: seen(notes))
    ((kind, reason, _),) = seen(notes)
    assert (kind, reason) == ("down", ("gone", 1))


async def test_a_link_made_on_both_sides_is_told_once(
    runtime: Runtime, hosted: Hosted, notes: Ref
) -> None:
    clerk, frail = await hosted(Clerk), runtime.spawn(Frail)
    runtime.send(clerk, ("trap", notes))
    runtime.send(clerk, ("link", frail))
    await runtime.call(clerk, ("pid",))
    runtime.link(frail, clerk)

    runtime.exit(frail, "tired")
    await eventually(lambda: seen(notes))
    await runtime.call(clerk, ("pid",))

    ((kind, reason, ref),) = seen(notes)
    assert (kind, reason, ref.is_alive) == ("exit", "tired", False)


async def test_a_reason_that_cannot_be_sent_comes_as_text(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    ending = asyncio.ensure_future(runtime.join(clerk))
    await asyncio.sleep(0)
    runtime.send(clerk, ("surprise",))

    assert str(await ending).startswith("<object object at ")


async def test_an_actor_there_ends_one_here(runtime: Runtime, hosted: Hosted) -> None:
    clerk = await hosted(Clerk)
    frail, other = runtime.spawn(Frail), runtime.spawn(Frail)
    runtime.send(clerk, ("exit", frail, "begone"))
    runtime.send(clerk, ("exit", other, "kill"))

    ends = await asyncio.gather(runtime.join(frail), runtime.join(other))

    assert ends == ["begone", "killed"]


async def test_a_dead_address_is_dead_there_too(
    runtime: Runtime, hosted: Hosted, notes: Ref
) -> None:
    frail = runtime.spawn(Frail)
    runtime.exit(frail, "shutdown")
    await runtime.join(frail)

    clerk = await hosted(Clerk, None, None)
    runtime.send(clerk, ("watch", frail, notes))

    await eventually(lambda: seen(notes))
    ((kind, reason, _),) = seen(notes)
    assert (kind, reason) == ("down", "noproc")


# Its log and output.


async def test_its_log_records_are_handled_here(
    runtime: Runtime, hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rigs.hosted_actors"):
        clerk = await hosted(Clerk)
        runtime.send(clerk, ("log", "100 % done"))
        await eventually(lambda: "from a thread" in caplog.text)

    record = next(record for record in caplog.records if record.getMessage() == "100 % done")
    assert (record.name, record.levelname) == ("rigs.hosted_actors", "WARNING")
    assert record.process == clerk.cell.actor.os_pid


async def test_its_output_is_ours(
    runtime: Runtime, hosted: Hosted, capfd: pytest.CaptureFixture[str]
) -> None:
    clerk = await hosted(Clerk)
    runtime.send(clerk, ("print", "hello"))
    await runtime.call(clerk, ("pid",))
    runtime.exit(clerk, "shutdown")
    await runtime.join(clerk)

    assert capfd.readouterr() == ("hello\n", "hello as an error\n")
