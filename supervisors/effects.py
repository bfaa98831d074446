"""Effects, which the core of a supervisor asks of its driver, and children.

Every operation of the core is a generator. It yields one of the effects below; the driver
carries it out, at once or after a while, and sends the answer back in:

========================= ==========================================================
effect                    answer
========================= ==========================================================
``Start(spec, args)``     the child's address, ``None`` (it ignored), ``Failed(reason)``
``Stop(ref, spec)``       the reason the child ended of, when it is dead
``StopAll(refs, spec)``   the reasons of all, when the last one is dead
``Later(delay_s, again)`` nothing; ``again`` is handed to ``core.again`` after the delay
                          (0: behind the requests that wait already)
``Report``                nothing (``leveret.supervisors.reports``)
``Restarted``             nothing; only if the spec has ``on_restart``
========================= ==========================================================

The generator's return value is the answer of a request, or for ``exited``, ``again`` and ``boot``
``None`` or the reason that the supervisor has to end with; its children are stopped by then.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from leveret.supervisors.spec import ChildSpec, Report, Restarted

RESTARTING: Final = "restarting"


@dataclass(slots=True, eq=False)
class Start:
    """Start a child, linked to the supervisor, and answer when its ``init`` has."""

    spec: ChildSpec
    args: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Stop:
    """Stop one child as its spec's ``shutdown`` says, linked or not, and answer when it is dead.

    For a child that was dead before the answer is its real exit reason.
    """

    ref: Any
    spec: ChildSpec


@dataclass(slots=True, eq=False)
class StopAll:
    """Stop many children of one spec at once, under one common time-out."""

    refs: list[Any]
    spec: ChildSpec


@dataclass(slots=True, eq=False)
class Later:
    """Come back with ``again`` after ``delay_s``."""

    delay_s: float
    again: Again


@dataclass(slots=True, eq=False)
class Failed:
    """A failed start and its reason."""

    reason: Any


@dataclass(slots=True, eq=False)
class Child:
    """A child: its spec, its arguments, and its address.

    ``ref`` is the address, ``None`` for a child that does not run, or the ``Again`` of the
    restart that it waits for. ``restarted_s`` is when it was started again last, by the clock of
    its runtime; ``waited_s`` is how long its latest restart has waited (back-off), and ``due_s`` when
    it was due.
    """

    spec: ChildSpec
    args: tuple[Any, ...] | None
    ref: Any = None
    restarts: int = 0
    restarted_s: float | None = None
    waited_s: float = 0.0
    due_s: float = 0.0

    def count_restart(self, now_s: float | None) -> None:
        """Note a start; None when it is no restart."""
        if now_s is not None:
            self.restarts += 1
            self.restarted_s = now_s

    @property
    def last_ref(self) -> Any:
        """The address; of a restarting child the last one."""
        ref = self.ref
        return ref.old_ref if type(ref) is Again else ref

    @property
    def is_running(self) -> bool:
        return self.ref is not None and type(self.ref) is not Again

    @property
    def state(self) -> Any:
        """The address, ``None`` or ``restarting``, as requests show it."""
        return RESTARTING if type(self.ref) is Again else self.ref


@dataclass(slots=True, eq=False)
class Again:
    """A restart to be tried again; void as soon as the child's ``ref`` is something else.

    ``is_delayed`` when it was put off by the restart kind's delay, ``is_counted`` when by a back-off
    (else its start had failed); ``report`` is then the report of the child's end, if there was one.
    """

    child: Child
    old_ref: Any
    is_delayed: bool = False
    report: Report | None = None
    is_counted: bool = False


class Addresses(Protocol):
    """Addresses, as the core needs them to answer a request."""

    def is_address(self, key: Any) -> bool:
        """Tell an address from an id."""

    def is_alive(self, ref: Any) -> bool:
        """Tell whether the address is that of a living actor."""


Effect: TypeAlias = "Start | Stop | StopAll | Later | Report | Restarted"
Operation: TypeAlias = Generator[Effect, Any, Any]
