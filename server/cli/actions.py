"""What the verbs of ``leveret ctl`` do that are more than one question to the broker."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import stat
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import leveret
from leveret.core.errors import LeveretError
from leveret.core.sizes import SizeLimit, parse_size
from leveret.core.system.files import FILE_MODE, refuse_link
from leveret.management.definitions.file import read_definitions
from leveret.management.errors import EX_DATA, EX_SOFTWARE, EX_UNAVAILABLE, RefusedError
from leveret.metadata.passwords import MD5, SALT_BYTES, SHA256, SHA512, hash_password
from leveret.server.cli.commands import Command
from leveret.server.output import formats
from leveret.server.output.terminal import show

Options: TypeAlias = argparse.Namespace
Ask: TypeAlias = Callable[[str, dict[str, Any]], Any]
Action: TypeAlias = "Callable[[Command, Options, Ask], Any]"


class CheckFailedError(LeveretError):
    """A health check has found something.

    Args:
        text: that names it.
        value: the same as JSON.
    """

    def __init__(self, text: str, value: Any = None) -> None:
        super().__init__(text)
        self._value = value

    def show_as(self, formatter: str, is_silent: bool) -> None:
        """Have the error's text in the form that the output has."""
        if formatter == "json" and self._value is not None:
            self.args = (formats.json_line(self._value).rstrip("\n"),)
        elif is_silent:
            self.args = ("",)


class TimedOutError(LeveretError):
    """What a verb waits for has not come in time."""


class UsageError(LeveretError):
    """The arguments do not fit the verb."""


@dataclass(slots=True)
class Answer:
    """What a verb prints: a text, and as JSON a value; None: the form that every verb has."""

    text: str | None
    value: Any = None


def is_global(options: Options) -> bool:
    """Whether ``--global`` is given."""
    return bool(vars(options)["global"])


def plain(command: Command, options: Options, ask: Ask) -> Any:
    """Ask the broker the verb's question, with all its arguments."""
    names = [*command.positional, *(["vhost"] if command.has_vhost else [])]
    names += [option.field for option in command.options]
    return ask(command.verb, {name: getattr(options, name) for name in names})


def _done(command: Command, options: Options, ask: Ask) -> None:
    plain(command, options, ask)


def _cancelled(command: Command, options: Options, ask: Ask) -> Answer:
    count: int = plain(command, options, ask)
    text = f"{count} of {len(options.ids)} messages cancelled"
    return Answer(text, {"cancelled": count})


def _warned(command: Command, options: Options, ask: Ask) -> None:
    _warn(plain(command, options, ask))


def _warn(notices: list[str] | None) -> None:
    for notice in notices or ():
        show(f"Warning: {notice}", file=sys.stderr)


# -- users ----------------------------------------------------------------------------------------


def _with_password(command: Command, options: Options, ask: Ask) -> Any:
    if options.password is None:
        options.password = _password(EX_DATA if command.verb == "add_user" else EX_SOFTWARE)
    return plain(command, options, ask)


def _authenticate(command: Command, options: Options, ask: Ask) -> str:
    _with_password(command, options, ask)
    return "Success"


def _password(exit_code: int) -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Password: ")
    if not (line := sys.stdin.readline()):
        raise RefusedError("Password is not provided via argument or stdin", exit_code)
    return line.rstrip("\r\n")


def _hash(_command: Command, options: Options, _ask: Ask) -> str:
    algorithm = _ALGORITHMS.get(options.hashing_algorithm.lower())
    if algorithm is None:
        raise RefusedError(
            f"Bad argument: unsupported hashing algorithm: {options.hashing_algorithm}"
        )
    password = options.password
    if password is None:
        password = _password(EX_SOFTWARE)
    if not password:
        raise RefusedError("Bad argument: password cannot be an empty string")
    secret = password.encode("utf-8", "surrogateescape")
    return b64encode(hash_password(secret, os.urandom(SALT_BYTES), algorithm)).decode()


_ALGORITHMS: Final = {"md5": MD5} | {
    f"sha{dash}{bits}": name for dash in ("", "-") for bits, name in ((256, SHA256), (512, SHA512))
}


def _user_limits(command: Command, options: Options, ask: Ask) -> Any:
    if is_global(options):
        return ask(command.verb, {"user": None})
    return ask(command.verb, {"user": options.user})[0]["limits"]


def _vhost_limits(command: Command, options: Options, ask: Ask) -> Any:
    if is_global(options):
        return ask(command.verb, {"vhost": None})
    found = ask(command.verb, {"vhost": options.vhost})
    return ok(options, found[0]["limits"]) if found else found


def ok(options: Options, text: str, value: Any = None) -> Answer:
    """Return an answer that rabbitmqctl's JSON has as the ``value`` of ``result``."""
    return Answer(
        text, {"node": options.own_node, "result": "ok", "value": text if value is None else value}
    )


# -- limits of the node ---------------------------------------------------------------------------


def _set_limit(command: Command, options: Options, ask: Ask) -> None:
    _, limit = LIMITS[command.verb](options.threshold)
    ask(command.verb, {"size_bytes": limit.size_bytes, "share": limit.share})


def _watermark(words: list[str]) -> tuple[str, SizeLimit]:
    """Parse ``FRACTION`` or ``absolute SIZE``; return the banner's text and the limit.

    Raises:
        UsageError: the arguments have another form.
    """
    value, is_bare = _value(words, "absolute")
    if not is_bare:
        return f"{value} bytes", SizeLimit(_size(value))
    share = _number(value)
    if not 0.0 <= share <= 1.0:
        raise UsageError("The threshold should be a fraction between 0.0 and 1.0")
    return value, SizeLimit(share=share)


def _disk_limit(words: list[str]) -> tuple[str, SizeLimit]:
    """Parse ``SIZE`` or ``mem_relative MULTIPLE``; return the banner's text and the limit.

    Raises:
        UsageError: the arguments have another form.
    """
    value, is_bare = _value(words, "mem_relative")
    if is_bare:
        return f"{value} bytes", SizeLimit(_size(value))
    share = _number(value)
    if share < 0.0:
        raise UsageError("Bad argument")
    return f"{value} times the total RAM", SizeLimit(share=share)


def _value(words: list[str], kind: str) -> tuple[str, bool]:
    """Return the value, and whether it comes without a keyword."""
    if words and words[0] == kind:
        rest, is_bare = words[1:], False
    else:
        rest, is_bare = words, True
    if len(rest) != 1:
        raise UsageError("too many arguments." if rest else "not enough arguments.")
    return rest[0], is_bare


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError("Bad argument") from None


def _size(value: str) -> int:
    try:
        return parse_size(value)
    except ValueError:
        raise UsageError("Invalid units.") from None


LIMITS: Final[dict[str, Callable[[list[str]], tuple[str, SizeLimit]]]] = {
    "set_vm_memory_high_watermark": _watermark,
    "set_disk_free_limit": _disk_limit,
}


# -- vhosts, queues, connections ------------------------------------------------------------------


def _restart_vhost(command: Command, options: Options, ask: Ask) -> str:
    if plain(command, options, ask):
        return f"Successfully restarted vhost '{options.vhost}' on node '{options.own_node}'"
    return f"Vhost '{options.vhost}' is already running on node '{options.own_node}'"


def _trace(command: Command, options: Options, ask: Ask) -> str:
    plain(command, options, ask)
    state = "enabled" if command.verb == "trace_on" else "disabled"
    return f"Trace {state} for vhost {options.vhost}"


def _add_vhost(command: Command, options: Options, ask: Ask) -> None:
    tags = [tag.strip() for tag in options.tags.split(",") if tag.strip()]
    arguments = {"name": options.name, "description": options.description, "tags": tags}
    if options.default_queue_type:
        arguments["default_queue_type"] = options.default_queue_type
    ask(command.verb, arguments)


def _queues(command: Command, options: Options, ask: Ask) -> Any:
    """List queues: all, of this node (``--local``), running (``--online``) or down (``--offline``)."""
    found = ask(command.verb, {"vhost": options.vhost, "local": options.local})
    for row in found:
        if row.get("type") == "quorum":  # it has one replica
            node = row.get("node", options.own_node)
            row.update(leader=node, members=[node], online=[node] * (row.get("state") == "running"))
    if options.online == options.offline:
        return found
    return [row for row in found if (row.get("state") == "running") == options.online]


def _unresponsive(command: Command, options: Options, ask: Ask) -> Any:
    arguments = {"vhost": options.vhost, "queue_timeout_s": options.queue_timeout}
    return ask(command.verb, arguments | {"local": options.local})


def _delete_queue(command: Command, options: Options, ask: Ask) -> str:
    count = plain(command, options, ask)
    return f"Queue was successfully deleted with {count} ready messages"


def _close_all(command: Command, options: Options, ask: Ask) -> str:
    vhost = None if is_global(options) else options.vhost
    count = ask(command.verb, {"vhost": vhost, "reason": options.reason})
    return f"Closed {count} connections"


# -- definitions ----------------------------------------------------------------------------------


def _export(command: Command, options: Options, ask: Ask) -> Answer | None:
    found = ask(command.verb, {})
    document = json.dumps(found, separators=(",", ":"))
    if options.file == "-":
        return Answer(document, found)
    try:
        with os.fdopen(_opened(Path(options.file)), "w", encoding="utf-8") as file:
            file.write(document)
    except OSError as error:
        raise RefusedError(f"cannot write {options.file}: {error.strerror}") from error
    return None


def _opened(path: Path) -> int:
    """Open a file for password hashes and set its mode to 0600, also if it exists; /dev/stdout is not changed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    if path.parent == Path("/dev"):
        return os.open(path, flags)
    refuse_link(path)
    target = os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)
    try:
        if stat.S_ISREG(os.fstat(target).st_mode):
            os.fchmod(target, FILE_MODE)
            os.ftruncate(target, 0)
    except OSError:
        os.close(target)
        raise
    return target


def _import(command: Command, options: Options, ask: Ask) -> None:
    document = read_definitions(options.file)
    arguments = {"document": document, "unsupported_queues": options.unsupported_queues}
    _warn(ask(command.verb, arguments))


# -- the node -------------------------------------------------------------------------------------


def _version(_command: Command, options: Options, _ask: Ask) -> Answer:
    return ok(options, leveret.__version__, {"version": leveret.__version__})


def _server_version(_command: Command, _options: Options, ask: Ask) -> Answer:
    version = ask("about", {})["product_version"]
    return Answer(version, {"result": "ok", "value": version})


def _rotate(_command: Command, _options: Options, _ask: Ask) -> None:
    raise RefusedError("This command does not rotate logs anymore [deprecated]", EX_UNAVAILABLE)


def _log_location(_command: Command, options: Options, ask: Ask) -> Answer:
    files = _log_files(ask)
    return Answer("\n".join(files), {"node_name": options.own_node, "paths": files, "result": "ok"})


def _log_tail(_command: Command, options: Options, ask: Ask) -> Answer:
    path = _log_files(ask)[0]
    try:
        lines = formats.last_lines(path, max(0, options.number))
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from error
    return Answer("\n".join(lines), [{"message": line} for line in lines])


def _log_files(ask: Ask) -> list[str]:
    files: list[str] = ask("about", {})["log_files"]
    if not files:
        raise CheckFailedError("Error:\nNo log files configured on the node")
    return files


ACTIONS: Final[dict[str, Action]] = {
    "add_user": _with_password,
    "change_password": _with_password,
    "authenticate_user": _authenticate,
    "hash_password": _hash,
    "list_user_limits": _user_limits,
    "add_vhost": _add_vhost,
    "trace_on": _trace,
    "trace_off": _trace,
    "restart_vhost": _restart_vhost,
    "list_vhost_limits": _vhost_limits,
    "set_global_parameter": _warned,
    "set_policy": _warned,
    "set_operator_policy": _warned,
    "list_queues": _queues,
    "list_unresponsive_queues": _unresponsive,
    "purge_queue": _done,
    "forget_producer": _done,
    "delete_queue": _delete_queue,
    "cancel_delayed_messages": _cancelled,
    "close_all_connections": _close_all,
    "close_all_user_connections": _done,
    "set_vm_memory_high_watermark": _set_limit,
    "set_disk_free_limit": _set_limit,
    "export_definitions": _export,
    "import_definitions": _import,
    "version": _version,
    "server_version": _server_version,
    "rotate_logs": _rotate,
    "log_location": _log_location,
    "log_tail": _log_tail,
}
