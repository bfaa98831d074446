"""Histories in files: written as things happen, whole after kill -9, read back in order, and judged."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.actors.runtime.runtime import Runtime
from leveret.gm import Become, Callbacks, GroupEndedError, MemberId, RingNode, Stop
from leveret.gm.requests import MemberStatus
from mutants.planted import ROOT
from rigs.gm import check
from rigs.gm.recording import HistoryFileError, RecordedGroup, Recorder, read, text_of
from rigs.programs import ended
from rigs.waiting import eventually

A, B = (MemberId("n/1", number) for number in (1, 2))
AT_REST = MemberStatus("ready", 1, 2, (str(A), str(B)), {})


@pytest.fixture
def recorders(tmp_path: Path) -> dict[MemberId, Recorder]:
    """Of two members that have joined."""
    found = {each: Recorder(tmp_path / f"{each.number}.history") for each in (A, B)}
    for each, recorder in found.items():
        recorder.joined(each, (A, B))
    return found


async def ring_of(tmp_path: Path, live: Runtime, count: int) -> list[RecordedGroup]:
    node = RingNode(live)
    return [
        await RecordedGroup.join("g", Callbacks(), node, Recorder(tmp_path / f"{at}.history"))
        for at in range(count)
    ]


async def test_what_a_ring_does_is_recorded_and_found_to_be_right(
    tmp_path: Path, live: Runtime
) -> None:
    members = await ring_of(tmp_path, live, 3)
    bodies = [b"text", b"\xff\x00\n", b"x" * 1_000_000]
    for number, body in enumerate(bodies):
        await members[0].broadcast(b"%d" % number + body)
        await members[1].confirmed_broadcast(b"confirmed %d" % number + body)
    await members[2].group.leave()
    for each in members[:2]:
        await each.confirmed_broadcast(str(each.me).encode())
    await eventually(lambda: read([tmp_path]).history.counts()["changed"] == 5)

    await eventually(
        lambda: all(each.group.actor.cell.actor._member.pending == {} for each in members[:2])
    )
    for each in members[:2]:
        await each.rest()
    recording = read([tmp_path])

    assert recording.violations() == []
    assert recording.history.counts() == {
        "joined": 3,
        "changed": 5,
        "published": 8,
        "delivered": 6 * 3 + 2 * 2,
        "confirmed": 5,
        "ended": 1,
    }
    assert set(recording.rests) == {each.me for each in members[:2]}


async def test_a_recorded_member_does_as_its_callbacks_say(tmp_path: Path, live: Runtime) -> None:
    class Stopping(Callbacks):
        def handle_msg(self, publisher: MemberId, message: bytes) -> Stop:
            return Stop("done")

    class Becoming(Callbacks):
        def handle_msg(self, publisher: MemberId, message: bytes) -> Become:
            return Become(Stopping())

    recorder = Recorder(tmp_path / "1.history")
    member = await RecordedGroup.join("g", Becoming(), RingNode(live), recorder)
    await member.broadcast(b"1")
    for message in (b"2", b"3"):
        with pytest.raises(GroupEndedError):
            await member.broadcast(message)
    recording = read([tmp_path])

    assert recording.violations() == []
    assert recording.history.counts()["published"] == 2
    assert recording.history.counts()["delivered"] == 2


KILLED = """
import os, sys
from pathlib import Path
from leveret.gm import MemberId
from rigs.gm.recording import Recorder
me = MemberId("n/1", 1)
recorder = Recorder(Path("1.history"))
recorder.joined(me, [me])
for number in range(100_000):
    recorder.published(me, b"%d" % number)
    recorder.delivered(me, me, b"%d" % number)
    if number == 1_000:
        os.kill(os.getpid(), 9)
"""


def test_what_was_recorded_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(KILLED)

    done = ended([sys.executable, str(program)], tmp_path, PYTHONPATH=str(ROOT / "tests"))

    assert done.returncode == -signal.SIGKILL
    assert len(read([tmp_path]).history) == 1 + 2 * 1_001


def test_a_line_that_was_not_finished_is_left_out(
    tmp_path: Path, recorders: dict[MemberId, Recorder]
) -> None:
    recorders[A].published(A, b"1")
    file = tmp_path / "1.history"
    whole = file.read_bytes()
    file.write_bytes(whole + whole.splitlines(keepends=True)[1][:-5])

    assert read([tmp_path]).history.counts()["published"] == 1


def test_the_events_of_all_members_are_in_the_order_of_their_times(
    tmp_path: Path, recorders: dict[MemberId, Recorder]
) -> None:
    for number in range(10):
        recorders[B if number % 2 else A].published(B if number % 2 else A, b"%d" % number)
    events = read([tmp_path / "2.history", tmp_path / "1.history"]).history.events()

    assert [event[2] for event in events[2:]] == [b"%d" % number for number in range(10)]


def test_long_messages_stand_by_digests_that_differ() -> None:
    assert text_of(b"x" * 64) == "x" * 64
    texts = {text_of(b"x" * size + end) for size in (65, 66) for end in (b"", b"y")}
    assert len(texts) == 4
    assert all(len(text) < 64 for text in texts)


def lost(recorders: dict[MemberId, Recorder]) -> None:
    recorders[A].published(A, b"1")
    recorders[A].delivered(A, A, b"1")


def confirmed_too_early(recorders: dict[MemberId, Recorder]) -> None:
    lost(recorders)
    recorders[A].confirmed(A, b"1", [str(A), str(B)])
    recorders[B].delivered(B, A, b"1")


def out_of_nothing(recorders: dict[MemberId, Recorder]) -> None:
    recorders[B].delivered(B, A, b"1")


def goes_on(recorders: dict[MemberId, Recorder]) -> None:
    recorders[B].ended(B)
    recorders[B].published(B, b"1")


def dead_that_speaks(recorders: dict[MemberId, Recorder]) -> None:
    recorders[A].published(A, b"1")
    recorders[B].members_changed(B, (), (A,))
    recorders[B].delivered(B, A, b"1")


def rests(recorders: dict[MemberId, Recorder], **changed: Any) -> None:
    recorders[B].rested(B, replace(AT_REST, **changed))


@pytest.mark.parametrize(
    ("rule", "act"),
    [
        ("G2", lost),
        ("G3", confirmed_too_early),
        ("G1", out_of_nothing),
        ("G5", goes_on),
        ("G4", dead_that_speaks),
        ("I7", lambda recorders: rests(recorders, pending={str(A): 1})),
        ("I7", lambda recorders: rests(recorders, version=3)),
        ("I7", lambda recorders: rests(recorders, members=(str(B),))),
    ],
)
def test_a_broken_guarantee_is_named_by_the_command(
    rule: str,
    act: Callable[[dict[MemberId, Recorder]], None],
    tmp_path: Path,
    recorders: dict[MemberId, Recorder],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in (A, B):
        recorders[each].rested(each, AT_REST)
    assert check.main([str(tmp_path)]) == os.EX_OK
    assert "no violation" in capsys.readouterr().out
    act(recorders)

    assert check.main([str(tmp_path)]) == check.EX_VIOLATIONS
    assert f"\n{rule}: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "",
        "not JSON",
        "3",
        "[]",
        '["now", "joined", "n/1.1", []]',
        '[1, "came", "n/1.1"]',
        '[1, "joined", "n/1.1"]',
        '[1, "joined", "n/1", []]',
        '[1, "joined", "n/1.1", ["n"]]',
        '[1, "rested", "n/1.1", [1], [], {}]',
        '[1, "published", "n/1.1", "once"]\n[2, "published", "n/1.1", "once"]',
    ],
)
def test_a_file_that_is_no_history_is_named_with_the_line(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "1.history"
    file.write_text(f"{line}\n")

    with pytest.raises(HistoryFileError, match=r"1\.history, line \d: "):
        read([file])
    assert check.main([str(file)]) == os.EX_DATAERR
    assert "line" in capsys.readouterr().err


def test_the_command_says_how_it_is_used_and_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main([]) == os.EX_USAGE
    assert check.main(["--what"]) == os.EX_USAGE
    assert check.main([str(tmp_path)]) == os.EX_NOINPUT
    assert check.main([str(tmp_path / "none")]) == os.EX_NOINPUT
    assert "none" in capsys.readouterr().err
    assert check.main(["--help"]) == os.EX_OK
    assert "usage" in capsys.readouterr().out


def test_the_command_runs_by_its_name(tmp_path: Path, recorders: dict[MemberId, Recorder]) -> None:
    done = ended(
        [sys.executable, "-m", "rigs.gm.check", str(tmp_path)],
        tmp_path,
        PYTHONPATH=str(ROOT / "tests"),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("2 joined, ")


def test_a_line_is_json_that_people_can_read(
    tmp_path: Path, recorders: dict[MemberId, Recorder]
) -> None:
    recorders[A].delivered(A, B, b"hello")
    line = json.loads((tmp_path / "1.history").read_text().splitlines()[-1])

    assert line[1:] == ["delivered", "n/1.1", "n/1.2", "hello"]


def test_a_history_is_not_overwritten(tmp_path: Path, recorders: dict[MemberId, Recorder]) -> None:
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "1.history")
