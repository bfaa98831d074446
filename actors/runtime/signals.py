"""Exit signals, monitors and ``Down``, start results; the reasons actors end for.

A reason is any plain data. These have a meaning:

==================  ==========================================================================
``'normal'``        it was done; others ignore it unless they trap exits
``'shutdown'``      it was told to stop; ``('shutdown', x)`` likewise
``'kill'``          as a signal: cannot be trapped, and everybody else sees ``'killed'``
``'noproc'``        there was no such actor
``'noconnection'``  its process is gone, or cannot be reached any more
``Crash``           an exception escaped from a handler
==================  ==========================================================================
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.actors.runtime.ref import DEAD
from leveret.core.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from leveret.actors.runtime.ref import Ref

NORMAL: Final = "normal"
SHUTDOWN: Final = "shutdown"
KILL: Final = "kill"
KILLED: Final = "killed"
NOPROC: Final = "noproc"
NOCONNECTION: Final = "noconnection"
TIMEOUT: Final = "timeout"

_CHAIN_MAX: Final = 8
_INNER: Final = (
    "leveret.actors.runtime.",
    "leveret.actors.thespian.",
    "leveret.actors.service",
    "leveret.actors.gen_server",
)


def is_orderly(reason: object) -> bool:
    """Whether an actor that ended for this reason was done, or was told to stop."""
    if isinstance(reason, tuple) and reason:
        return bool(reason[0] == SHUTDOWN)
    return reason in (NORMAL, SHUTDOWN)


def is_exit_of_call(reason: object) -> bool:
    """Whether an actor ended because it called one that was dead or died (``CallExit``)."""
    if not isinstance(reason, tuple) or len(reason) != 2:
        return False
    return isinstance(reason[1], tuple) and reason[1][:1] == ("call",)


@dataclass(slots=True)
class Exit:
    """An exit signal, as mail for an actor that traps exits. ``sender`` is None from outside."""

    sender: Ref | None
    reason: object


@dataclass(slots=True)
class Down:
    """A monitored actor ended; comes once per monitor."""

    monitor: MonitorRef
    ref: Ref
    reason: object


class MonitorRef:
    """One monitor; its identity tells apart several monitors on one actor.

    Attributes:
        watcher: gets the message.
        target: the message comes when it ends.
        is_sent: whether the message has been sent.
    """

    __slots__ = ("is_sent", "target", "watcher")

    def __init__(self, watcher: Ref | None, target: Ref) -> None:
        self.watcher = watcher
        self.target = target
        self.is_sent = False

    def tell(self, reason: object) -> None:
        if self.watcher is not None:
            cell = self.watcher.cell
            if not cell.state & DEAD:
                self.is_sent = True
                cell.turns.put(cell, (self.mail(reason), self.target))

    def mail(self, reason: object) -> object:
        return Down(self, self.target, reason)

    def withdraw(self) -> None:
        """Take the message back if the watcher has not handled it."""
        if self.is_sent and self.watcher is not None:
            self.watcher.cell.remove_mail(
                lambda mail: type(mail[0]) is Down and mail[0].monitor is self
            )


class Watch(MonitorRef):
    """A monitor from outside the actors: calls back, at once, with the reason."""

    __slots__ = ("_callback",)

    def __init__(self, target: Ref, callback: Callable[[object], None]) -> None:
        self.watcher = None
        self.target = target
        self.is_sent = False
        self._callback: Callable[[object], None] | None = callback

    def tell(self, reason: object) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(reason)

    def withdraw(self) -> None:
        """Drop the callback, which the target's end may be about to call."""
        self._callback = None


class Crash:
    """The reason of an actor from which an exception escaped.

    The exception itself is not kept: its traceback holds every local of every frame, among them
    messages. Class, text and places are copied, without the places in the runtime that has called the actor's code.

    Attributes:
        kind: the exception's class.
        text: ``str`` of the exception.
    """

    __slots__ = ("_frames", "kind", "text")

    def __init__(self, exception: BaseException) -> None:
        self.kind = type(exception)
        try:
            self.text = str(exception)
        except Exception as error:  # noqa: BLE001  # a broken __str__ must not hide the crash
            self.text = f"unprintable: {type(error).__name__}"
        self._frames: _Frames | str = _frames_of(exception)

    @classmethod
    def from_texts(cls, module: str, name: str, text: str, traceback: str) -> Crash:
        """Return the crash of an actor in another process from its texts; nothing is imported for it."""
        crash = cls.__new__(cls)
        crash.kind = _exception_class(module, name)
        crash.text = text
        crash._frames = traceback  # noqa: SLF001  # its own
        return crash

    @property
    def traceback(self) -> str:
        """The traceback as Python prints it, source lines read from the files now."""
        if isinstance(self._frames, str):
            return self._frames
        parts = []
        for header, frames in self._frames:
            parts.append(header)
            for filename, line_no, function in frames:
                parts.append(f'  File "{filename}", line {line_no}, in {function}')
                line = linecache.getline(filename, line_no).strip()
                if line:
                    parts.append(f"    {line}")
        name = self.kind.__qualname__
        if self.kind.__module__ != "builtins":
            name = f"{self.kind.__module__}.{name}"
        parts.append(f"{name}: {self.text}" if self.text else name)
        return "\n".join(parts)

    def as_exception(self) -> BaseException:
        """Return an exception of the same class and text, of which another can be raised; its note is the traceback.

        It has not the attributes of the one that escaped. Where the class cannot be made so, it is an ``ActorError``.
        """
        kind, text = self.kind, self.text
        fields = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        error: BaseException
        try:
            stand_in: Any = type(kind.__name__, (kind,), {**fields, "__str__": lambda _: text})
            error = stand_in.__new__(stand_in)
        except Exception:  # noqa: BLE001  # a class may ask for anything
            error = ActorError(f"{kind.__qualname__}: {text}")
        error.add_note(self.traceback)
        return error

    def __eq__(self, other: object) -> bool:
        return type(other) is Crash and (self.kind, self.text) == (other.kind, other.text)

    def __hash__(self) -> int:
        return hash((self.kind, self.text))

    def __repr__(self) -> str:
        return f"Crash({self.kind.__name__}: {self.text})"


def _exception_class(module: str, name: str) -> type[BaseException]:
    """Return the class of that name if it is known here, else a stand-in."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return type(name, (Exception,), {"__module__": module})


_Places: TypeAlias = tuple[tuple[str, int, str], ...]
_Frames: TypeAlias = tuple[tuple[str, _Places], ...]


def _frames_of(
    exception: BaseException, header: str = "Traceback (most recent call last):"
) -> _Frames:
    """Return header and places for the exception, the members of a group, and its causes."""
    found: list[tuple[str, _Places]] = []
    error: BaseException | None = exception
    while error is not None and len(found) < _CHAIN_MAX:
        found.append((header, _places(error.__traceback__)))
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions[:_CHAIN_MAX]:
                member = f"In the group {type(one).__name__}: {one} (most recent call last):"
                found.extend(_frames_of(one, member))
        if error.__cause__ is None and error.__suppress_context__:
            break
        error = error.__cause__ or error.__context__
        if error is not None:
            header = f"Caused by {type(error).__name__} (most recent call last):"
    return tuple(found)


def _places(trace: TracebackType | None) -> _Places:
    """Return where the exception was, without the runtime that called the actor's code, if it went further."""
    places: list[tuple[str, int, str]] = []
    inner = 0
    while trace is not None:
        frame = trace.tb_frame
        if inner == len(places) and frame.f_globals.get("__name__", "").startswith(_INNER):
            inner += 1
        places.append((frame.f_code.co_filename, trace.tb_lineno, frame.f_code.co_qualname))
        trace = trace.tb_next
    return tuple(places[inner:] or places)


@dataclass(slots=True)
class Started:
    """The start was acknowledged; ``value`` is what ``init`` returned or ``started()`` was given."""

    ref: Ref
    value: object = None


@dataclass(slots=True)
class Ignored:
    """``init`` returned IGNORE; the actor is gone."""


@dataclass(slots=True)
class StartFailed:
    """The actor is gone; it failed or ended before its start was acknowledged."""

    reason: object


StartResult: TypeAlias = Started | Ignored | StartFailed


@dataclass(slots=True)
class CallFailed:
    """Given to a call's continuation instead of a reply: ``'timeout'`` or why the server ended."""

    reason: object


class Constant:
    """A value that stands for itself."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


IGNORE: Final[Any] = Constant("IGNORE")  # returned by init: do not start
LATER: Final[Any] = Constant("LATER")  # returned by init: started() will be called
NOREPLY: Final[Any] = Constant("NOREPLY")  # returned by handle_call: reply() will be called


class StartError(ActorError):
    """``spawn`` failed; ``reason`` says why."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"actor did not start: {reason!r}")
        self.reason = reason


class StopActor(BaseException):  # control flow, not an error
    """Ends the actor whose code is running; raised by ``self.stop``. Not for catching."""

    def __init__(self, reason: object = NORMAL) -> None:
        super().__init__(reason)
        self.reason = reason


class CallExit(BaseException):  # control flow, not an error
    """A call found its server dead or saw it die.

    Not an ``Exception``: in an actor it is meant to end the caller, too, whatever handlers stand
    between. Tasks outside the actors may catch it by name.

    Attributes:
        ref: the server.
        reason: why it ended, or ``'noproc'``, ``'timeout'``.
    """

    def __init__(self, ref: Ref, reason: object) -> None:
        super().__init__(ref, reason)
        self.ref = ref
        self.reason = reason

    @property
    def exit_reason(self) -> object:
        """Why an actor ends that does not survive this: as in Erlang ``(reason, (call, who))``."""
        return (self.reason, ("call", str(self.ref)))
