"""Any program as an actor, so that a supervisor can own it.

How it ends: exit status 0 (or another of ``ok_statuses``): ``normal``; another status n:
``("exit_status", n)``; a signal: ``("signal", "SIGSEGV")``, SIGKILL ``killed``. Told to stop, it gets
``stop_signal`` and the actor ends with the reason of its exit signal, not with the program's status; when the actor is
killed, the program and all it has started get SIGKILL. It ends with this process (on Linux).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from leveret.actors.actor import OtpActor
from leveret.actors.processes import die_with_parent
from leveret.actors.processes.os_process import OsProcess
from leveret.actors.runtime.signals import KILLED, LATER, NORMAL, Exit
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leveret.actors.runtime.ref import Cell, Ref

log = logger(__name__, is_counted=False)

Output = Literal["inherit", "log", "discard"]
_OUTPUTS: Final = ("inherit", "log", "discard")
LINE_BYTES_MAX: Final = 64 * 1024  # a longer one is cut into several


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A program and how it is run.

    Attributes:
        argv: program and arguments; no shell.
        cwd: its working directory; this process's by default.
        env: further environment variables.
        output: stdout and stderr: ``inherit`` (this process's), ``log`` (a record of level INFO per line, of the
            logger ``leveret.actors.processes.command``) or ``discard``.
        ready_text: the start is acknowledged when a line of the output has this in it (needs
            ``output="log"``); at once by default.
        stop_signal: the signal that tells it to stop.
        ok_statuses: exit statuses that count as ``normal``.
    """

    argv: tuple[str, ...]
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    output: Output = "inherit"
    ready_text: str | None = None
    stop_signal: int = signal.SIGTERM
    ok_statuses: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        argv: object = self.argv
        if isinstance(argv, str):
            remedy = f"; write {shlex.split(argv)}" if argv else ""
            raise ActorError(f"a command is a list of program and arguments, not {argv!r}{remedy}")
        if not self.argv:
            raise ActorError(f"a command is a list of program and arguments, not {argv!r}")
        object.__setattr__(self, "argv", tuple(map(_text_of, self.argv)))
        for name, value in (self.env or {}).items():
            _text_of(name), _text_of(value)
        if self.output not in _OUTPUTS:
            raise ActorError(f"output is {self.output!r}, must be one of {', '.join(_OUTPUTS)}")
        if self.ready_text is not None and self.output != "log":
            raise ActorError("ready_text needs output='log', or the lines are not read")


class Command(OtpActor):
    """Runs the program of a ``CommandSpec``."""

    trap_exits = True

    def init(self, spec: CommandSpec, *more: str) -> object:
        """Start the program; ``more`` arguments follow the spec's."""
        loop = self.runtime.loop
        if loop is None:
            raise ActorError("programs need an event loop")
        self._spec = spec
        self._is_ready = spec.ready_text is None
        self._stop_reason: object = None
        self._is_stopping = self._is_read = False
        self._is_read = spec.output != "log"
        argv = (_found(spec, spec.argv[0]), *spec.argv[1:], *more)
        process = self._process = OsProcess(_launched(argv), loop, **_options(spec))
        self.runtime.tasks.await_at_shutdown(process.ended)
        self.runtime.watch(self.ref, lambda _: process.end_now())
        process.ended.add_done_callback(lambda _: self._turn(self.end_with_process))
        if not self._is_read:
            lines = Lines(partial(self._turn, self.take_line), partial(self._turn, self.all_read))
            reading = loop.connect_read_pipe(lambda: lines, process.output)
            task = self.runtime.tasks.new_task(self.ref.cell, reading, _connected)
            task.add_done_callback(lambda _: None if lines.is_open else process.output.close())
        return None if self._is_ready else LATER

    @property
    def os_pid(self) -> int:
        return self._process.pid

    def handle_mail(self, message: Any, sender: Ref | None) -> object:
        if type(message) is not Exit:
            return super().handle_mail(message, sender)
        if (sender is self.parent or message.reason != NORMAL) and not self._is_stopping:
            self._is_stopping, self._stop_reason = True, message.reason
            self._process.signal(self._spec.stop_signal)
        return None

    def _turn(self, function: Callable[..., None], *args: Any) -> None:
        """Run a callback of the loop as a turn of the actor while it lives."""
        if self.ref.is_alive:
            self.runtime.run_as(self.ref, function, *args)

    def take_line(self, line: str) -> None:
        """Log a line of the output and see whether it says that the program is ready."""
        log.info("%s", line, extra={"command": self.ref.cell.describe(), "pid": self.os_pid})
        text = self._spec.ready_text
        if not self._is_ready and text is not None and text in line:
            self._is_ready = True
            self.started(self.os_pid)

    def all_read(self) -> None:
        self._is_read = True
        self.end_with_process()

    def end_with_process(self) -> None:
        """End when the program has and its output is read."""
        if self._is_read and self._process.ended.done():
            status = self._process.ended.result()
            self.stop(self._stop_reason if self._is_stopping else _reason(status, self._spec))


def _text_of(value: str | os.PathLike[str]) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ActorError(f"arguments and environment of a command are texts, not {value!r}")
    return os.fspath(value)


def _reason(status: int, spec: CommandSpec) -> object:
    if status in spec.ok_statuses:
        return NORMAL
    if status == -signal.SIGKILL:
        return KILLED
    if status < 0:
        return ("signal", signal.Signals(-status).name)
    return ("exit_status", status)


def _found(spec: CommandSpec, program: str) -> str:
    """Return the path of the program, so that a missing one is an error of the start."""
    path = (spec.env or {}).get("PATH")
    at = Path(spec.cwd or ".", program) if "/" in program else program
    found = shutil.which(at, path=path)
    if found is None:
        raise FileNotFoundError(f"no program {program!r}")
    return os.path.abspath(found)


def _launched(argv: tuple[str, ...]) -> list[str]:
    """Return a command line that runs ``argv`` as a process that dies with this one."""
    if sys.platform != "linux":
        return list(argv)
    return [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *argv]


def _options(spec: CommandSpec) -> dict[str, Any]:
    output = {"inherit": None, "log": subprocess.PIPE, "discard": subprocess.DEVNULL}[spec.output]
    options: dict[str, Any] = {"cwd": spec.cwd, "stdout": output}
    options["stderr"] = subprocess.STDOUT if spec.output == "log" else output
    if spec.env is not None:
        options["env"] = os.environ | spec.env
    return options


def _connected(cell: Cell, task: asyncio.Task[Any]) -> None:
    """End a command whose output cannot be read."""
    if not task.cancelled():
        cell.actor.runtime.run_as(cell.ref, task.result)


class Lines(asyncio.Protocol):
    """Cuts the output of a pipe into lines.

    Args:
        take: called with each line, without its end; bytes that are not UTF-8 are escaped.
        done: called once when the pipe is at its end.
    """

    def __init__(self, take: Callable[[str], None], done: Callable[[], None]) -> None:
        self._take = take
        self._done = done
        self._rest = b""
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Hand over the lines that have become whole."""
        *lines, rest = (self._rest + data).split(b"\n")
        while len(rest) > LINE_BYTES_MAX:
            lines.append(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._rest = rest
        for line in lines:
            self._take(_text(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand over the last line, if it had no end."""
        if self._rest:
            self._take(_text(self._rest))
        self._done()


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode(errors="backslashreplace")
