"""The verbs of ``leveret ctl`` that wait for the start of a node, or end it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from leveret.management.errors import EX_SOFTWARE, RefusedError
from leveret.server.cli.actions import (
    Action,
    Ask,
    CheckFailedError,
    Options,
    TimedOutError,
    UsageError,
)
from leveret.server.cli.commands import Command
from leveret.server.control_client import NoBrokerError
from leveret.server.output.terminal import show

WAIT_S: Final = 0.1  # between two polls


def _await_startup(command: Command, options: Options, ask: Ask) -> None:
    """Wait until the broker answers and every vhost serves, whether or not it runs already."""
    _until(lambda: _serves(ask), command, options)


def _wait(command: Command, options: Options, ask: Ask) -> None:
    """Wait for a process, which a file may name, to be a node whose vhosts serve."""
    if (options.pidfile is None) == (options.pid is None):
        both = options.pidfile is not None
        raise UsageError(
            "Cannot specify both pid and pidfile" if both else "No pid or pidfile specified"
        )
    say: Callable[[str], None] = (lambda _: None) if options.quiet or options.silent else show
    pid = options.pid
    if options.pidfile is not None:
        say(f"Waiting for pid file '{options.pidfile}' to appear")
        pid = _until(lambda: _pid_in(Path(options.pidfile)), command, options)
        say(f"pid is {pid}")
    say(f"Waiting for node '{options.own_node}' while OS process '{pid}' is running")

    def is_up() -> bool:
        if not _is_alive(pid):
            raise RefusedError("Error: process is not running.", EX_SOFTWARE)
        return _serves(ask)

    _until(is_up, command, options)
    say(f"Applications 'rabbit_and_plugins' are running on node '{options.own_node}'")


def _stop(command: Command, options: Options, ask: Ask) -> str | None:
    """Have the node end; with a file of its process id, wait until it has."""
    pid = _pid_in(Path(options.pidfile)) if options.pidfile is not None else None
    try:
        ask("stop", {})
    except NoBrokerError:
        if options.idempotent:
            return f"Node {options.own_node} is no longer running"
        raise
    if options.pidfile is None:
        return None
    if pid is None:
        raise CheckFailedError(f"Error:\ncould not read pid from file {options.pidfile}")
    _until(lambda: not _is_alive(pid), command, options)
    return f"process {pid} (take from pid file {options.pidfile}) is no longer running"


def _shutdown(command: Command, options: Options, ask: Ask) -> str | None:
    """Have the node end, and wait until it has, but for ``--no-wait``."""
    pid: int = ask("about", {})["pid"]
    if options.no_wait:
        ask("stop", {})
        return None
    show(f"Shutting down RabbitMQ node {options.own_node} running at PID {pid}")
    ask("stop", {})
    show(f"Waiting for PID {pid} to terminate", flush=True)
    _until(lambda: not _is_alive(pid), command, options)
    return f"RabbitMQ node {options.own_node} running at PID {pid} successfully shut down"


def _until(condition: Callable[[], Any], command: Command, options: Options) -> Any:
    """Wait until a condition returns something true; return that.

    Raises:
        TimedOutError: it did not in time.
    """
    found = wait_until(condition, options.timeout)
    if not found:
        raise TimedOutError(
            f"operation {command.verb} on node {options.own_node} timed out."
            f" Timeout value used: {options.timeout * 1000:.0f}"
        )
    return found


def wait_until(condition: Callable[[], Any], timeout_s: float) -> Any:
    """Poll a condition until it returns something true, or the time is over; return its last value."""
    until_s = time.monotonic() + timeout_s
    while not (found := condition()) and time.monotonic() < until_s:
        time.sleep(WAIT_S)
    return found


def _serves(ask: Ask) -> bool:
    try:
        return not ask("about", {})["vhosts_down"]
    except NoBrokerError:
        return False


def _pid_in(path: Path) -> int | None:
    """Return the process id that a file begins with; None if there is no such file, or nothing in it yet."""
    try:
        text = path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusedError(
            f"Error: could not read pid. Detail: {error.strerror}", EX_SOFTWARE
        ) from error
    if text and not text.isdigit():
        raise RefusedError("Error: garbage in pid file.", EX_SOFTWARE)
    return int(text) if text else None


def _is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # there is no /proc, or the process has ended now
        return True
    return not stat.rpartition(b")")[2].startswith(b" Z")


LIFE: Final[dict[str, Action]] = {
    "await_startup": _await_startup,
    "wait": _wait,
    "stop": _stop,
    "shutdown": _shutdown,
}
