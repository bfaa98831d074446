"""The client of the control socket (``control.py``); it needs no event loop, so that commands start quickly."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import LeveretError
from leveret.management import json_text
from leveret.management.errors import RefusedError
from leveret.server.process import LOCK

SOCKET: Final = "control.sock"
PART_ITEMS: Final = 250  # of a list; a longer one goes in parts
PART_BYTES: Final = 128 * 1024  # a client begins a new part
PATH_BYTES_MAX: Final = 100


class NoBrokerError(LeveretError):
    """No broker runs in that data directory."""


class ControlFailedError(LeveretError):
    """The broker could not answer; the request was not at fault."""


def seconds(text: str) -> float:
    """Return the seconds that an option gives, a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


def ask(
    data_dir: Path,
    verb: str,
    arguments: dict[str, Any],
    timeout_s: float = 60.0,
    warn: Callable[[str], object] = warnings.warn,
) -> Any:
    """Ask the broker that runs in a data directory.

    Args:
        data_dir: where it runs.
        verb: the name of the verb.
        arguments: of the verb, by name.
        timeout_s: for the answer.
        warn: called with each text that the operator should know besides the value.

    Returns:
        The value that the verb returned.

    Raises:
        NoBrokerError: no broker runs on that data directory.
        RefusedError: the broker refused; with the broker's text.
        ControlFailedError: no answer, or the broker failed.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        _connect(client, data_dir)
        try:
            # The broker has refused the request early; its answer can be read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for line in _lines(verb, arguments):
                    client.sendall(line)
            answer = client.makefile("rb").readline()
        except TimeoutError as error:
            raise ControlFailedError(f"no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise ControlFailedError(f"connection lost: {error.strerror or error}") from error
    return _result(answer, warn)


def _lines(verb: str, arguments: dict[str, Any]) -> Iterator[bytes]:
    """Yield the lines of a request: parts of the long lists of its arguments, then the request."""
    shown: dict[str, Any] = {}
    for name, value in arguments.items():
        shown[name] = value
        if isinstance(value, dict):
            shown[name] = dict(value)
            for section, items in value.items():
                if isinstance(items, list) and len(items) > PART_ITEMS:
                    shown[name][section] = []
                    yield from _parts([name, section], items)
    yield json_text.encode({"verb": verb, "arguments": shown}) + b"\n"


def _parts(path: list[str], items: list[Any]) -> Iterator[bytes]:
    start = b'{"part":' + json_text.encode(path) + b',"items":['
    texts: list[bytes] = []
    size = 0
    for item in items:
        texts.append(json_text.encode(item))
        size += len(texts[-1])
        if size >= PART_BYTES:
            yield start + b",".join(texts) + b"]}\n"
            texts, size = [], 0
    if texts:
        yield start + b",".join(texts) + b"]}\n"


def _result(line: bytes, warn: Callable[[str], object]) -> Any:
    if not line.endswith(b"\n"):
        raise ControlFailedError("the broker went away without an answer")
    answer: dict[str, Any] = json_text.decode(line)
    if "refused" in answer:
        bare = answer.get("bare", False)
        raise RefusedError(answer["refused"], answer["exit_code"], is_bare=bare)
    if "failed" in answer:
        raise ControlFailedError(answer["failed"])
    for text in answer.get("warnings", ()):
        warn(text)
    return answer["ok"]


def _connect(client: socket.socket, data_dir: Path) -> None:
    folder = data_dir.absolute()
    try:
        with short_alias(folder / SOCKET) as short:
            client.connect(short)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        what = "" if folder.is_dir() else ", which is no directory"
        text = f"no broker is running in {folder}{what}; --data DIR or LEVERET_DATA chooses another"
        if found := running_brokers():
            text += ": brokers run in " + ", ".join(
                f"{path} (process {pid})" for path, pid in sorted(found.items())
            )
        raise NoBrokerError(text) from error
    except PermissionError as error:
        raise NoBrokerError(
            f"no permission to open {folder / SOCKET}: only the broker's user may"
        ) from error


def running_brokers() -> dict[Path, int]:
    """Return the data directories and process ids of this machine's brokers that ``/proc`` shows to this user."""
    found: dict[Path, int] = {}
    try:
        rows = [row.split() for row in Path("/proc/locks").read_text("ascii").splitlines()]
    except OSError:  # there is no /proc
        return found
    for pid in {row[4] for row in rows if row[1] == "FLOCK"}:
        with contextlib.suppress(OSError):  # another user's process, or it has ended
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):  # the descriptor is closed
                    path = Path(os.readlink(f"/proc/{pid}/fd/{number}"))
                    if path.name == LOCK and (path.parent / SOCKET).exists():
                        found[path.parent] = int(pid)
    return found


@contextlib.contextmanager
def short_alias(path: Path) -> Iterator[str]:
    """Yield a path to the same file that is short enough for a unix socket's address."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        through = Path(f"/proc/self/fd/{folder}")
        if through.exists():
            yield str(through / path.name)
            return
        with tempfile.TemporaryDirectory(prefix="leveret") as short:
            link = Path(short, "d")
            link.symlink_to(path.parent)
            yield str(link / path.name)
    finally:
        os.close(folder)
