"""Output whose reader goes away (``leveret ... | head -1``): the command ends, and nothing is a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.server.cli.main import main
from leveret.server.output.terminal import show
from rigs.nodes import clean_environment, leveret_program


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output is a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        yield
    monkeypatch.undo()


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(
    "arguments",
    [
        ["tree"],
        ["status"],
        ["ctl", "list_queues"],
        ["ctl", "report"],
        ["ctl", "list_queues", "--formatter", "json"],
    ],
)
def test_a_command_ends_without_a_word(
    serving: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--data", str(serving)]) == 0
    show("to nobody", flush=True)
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is full")
def test_output_that_cannot_be_written_is_one_line(
    serving: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert main(["tree", "--data", str(serving)]) == os.EX_IOERR
    monkeypatch.undo()

    assert capfd.readouterr().err == (
        "leveret: standard output cannot be written: No space left on device\n"
    )


@pytest.mark.usefixtures("closed")
def test_a_check_keeps_its_verdict(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("a = 1")

    assert main(["config", "check", str(file)]) == 1


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ctl", "help"], ["perf", "--help"], ["stats", "--help"]]
)
def test_a_page_of_help_may_be_cut(arguments: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [leveret_program(), *arguments],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (0, b"")
