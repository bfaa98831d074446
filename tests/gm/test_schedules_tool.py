"""The command that plays schedules by the million."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.gm.ring.member import Member
from mutants.planted import ROOT
from rigs.nodes import clean_environment

TOOL = ROOT / "tools" / "schedules.py"


def play(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments, "--processes", "1", "--done", "done"],
        cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_blocks_that_hold_are_noted_and_not_played_again(tmp_path: Path) -> None:
    (tmp_path / "done").write_text("0 1000 ok\n1000 1020 wrong\n")
    first = play(tmp_path, "gm", "0", "1020")
    again = play(tmp_path, "gm", "0", "1020")

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("20 schedules in ")
    assert (tmp_path / "done").read_text().splitlines()[2:] == ["1000 1020 ok"]
    assert again.stdout.startswith("0 schedules in ")


def test_seeds_that_are_left_when_the_time_is_over_are_counted(tmp_path: Path) -> None:
    ended = play(tmp_path, "replicas", "1000", "3000", "--seconds", "0")

    assert ended.returncode == 3
    assert "0 wrong, 2,000 left" in ended.stdout


def test_a_seed_that_breaks_a_guarantee_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = runpy.run_path(str(TOOL))["judge"]
    monkeypatch.setattr(Member, "_own_acked", lambda _: None)
    _, wrong = judge("gm", range(10))

    assert all(each.startswith("Schedule(") for each in wrong)
    assert any("waits for ever for the confirms of " in each for each in wrong)
