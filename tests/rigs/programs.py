"""Programs of their own process: started in a folder of their own, always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rigs.nodes import clean_environment
from rigs.waiting import wait_until

TIMEOUT_S = 30.0


def ended(
    command: Sequence[str],
    folder: Path,
    *,
    text: str | None = None,
    timeout_s: float = TIMEOUT_S,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run to the end, whatever that is."""
    return subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(**environment),
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run(
    command: Sequence[str],
    folder: Path,
    *,
    text: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Run to a good end and return the output; a failure shows all of it."""
    done = ended(command, folder, text=text, timeout_s=timeout_s)
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def python(script: Path, *arguments: str, folder: Path) -> str:
    return run([sys.executable, str(script), *arguments], folder)


class Background:
    """A program that goes on until it is told to stop; its output goes to a file.

    Use it as a context: leaving sends SIGTERM to the whole process group and, in the end, SIGKILL.
    """

    def __init__(self, command: Sequence[str], folder: Path, log: str = "log") -> None:
        self.log = folder / log
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=clean_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, count: int = 1, timeout_s: float = TIMEOUT_S) -> str:
        """Wait until the program has printed ``text`` so often; return all it printed."""

        def is_printed() -> bool:
            if self.output.count(text) >= count:
                return True
            assert self.process.poll() is None, f"it ended:\n{self.output}"
            return False

        wait_until(is_printed, lambda: f"no {text!r} in:\n{self.output}", timeout_s)
        return self.output

    def signal_group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.signal_group(signal.SIGKILL)
        self.process.wait()
