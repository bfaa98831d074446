"""Effects, which the supervisor kernel asks of its driver, and children.

Every operation of the kernel is a generator. It yields one of the effects below; the driver
carries it out, at once or after a while, and sends the answer back in:

========================= ==========================================================
effect                    answer
========================= ==========================================================
``Start(spec, args)``     the child's address, ``None`` (it ignored), ``Failed(reason)``
``Stop(ref, spec)``       the reason the child ended of, when it is dead
``StopAll(refs, spec)``   the reasons of all, when the last one is dead
``Later(delay_s, again)`` nothing; ``again`` is handed to ``kernel.again`` after the delay
                          (0: behind the requests that wait already)
``Report``                nothing (``leveret.supervisors.reports``)
``Restarted``             nothing; only if the spec has ``on_restart``
========================= ==========================================================

The generator's return value is the answer of a request, or for ``exited``, ``again`` and ``boot``
``None`` or the reason that the supervisor has to end with; its children are stopped by then.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from leveret.supervisors.reports import Report, Restarted
    from leveret.supervisors.spec import ChildSpec

RESTARTING: Final = "restarting"


class Start:
    """Start a child, linked to the supervisor, and answer when its ``init`` has."""

    __slots__ = ("args", "spec")

    def __init__(self, spec: ChildSpec, args: tuple[Any, ...]) -> None:
        self.spec = spec
        self.args = args


class Stop:
    """Stop one child as its spec's ``shutdown`` says, linked or not, and answer when it is dead.

    For a child that was dead before the answer is its real exit reason.
    """

    __slots__ = ("ref", "spec")

    def __init__(self, ref: Any, spec: ChildSpec) -> None:
        self.ref = ref
        self.spec = spec


class StopAll:
    """Stop many children of one spec at once, under one common time-out."""

    __slots__ = ("refs", "spec")

    def __init__(self, refs: list[Any], spec: ChildSpec) -> None:
        self.refs = refs
        self.spec = spec


class Later:
    """Come back with ``again`` after ``delay_s``."""

    __slots__ = ("again", "delay_s")

    def __init__(self, delay_s: float, again: Again) -> None:
        self.delay_s = delay_s
        self.again = again


class Failed:
    """A failed start and its reason."""

    __slots__ = ("reason",)

    def __init__(self, reason: Any) -> None:
        self.reason = reason


class Child:
    """A child: its spec, its arguments, and its address.

    ``ref`` is the address, ``None`` for a child that does not run, or the ``Again`` of the
    restart that it waits for. ``restarted_s`` is when it was started again last, by the clock of
    its runtime; ``waited_s`` is how long its latest restart has waited (back-off), and ``due_s`` when
    it was due.
    """

    __slots__ = ("args", "due_s", "ref", "restarted_s", "restarts", "spec", "waited_s")

    def __init__(self, spec: ChildSpec, args: tuple[Any, ...] | None, ref: Any = None) -> None:
        self.spec = spec
        self.args = args
        self.ref = ref
        self.restarts = 0
        self.restarted_s: float | None = None
        self.waited_s = 0.0
        self.due_s = 0.0

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


class Again:
    """A restart to be tried again; void as soon as the child's ``ref`` is something else.

    ``is_delayed`` when it was put off by the restart kind's delay, ``is_counted`` when by a back-off
    (else its start had failed); ``report`` is then the report of the child's end, if there was one.
    """

    __slots__ = ("child", "is_counted", "is_delayed", "old_ref", "report")

    def __init__(
        self,
        child: Child,
        old_ref: Any,
        is_delayed: bool = False,
        report: Report | None = None,
        is_counted: bool = False,
    ) -> None:
        self.child = child
        self.old_ref = old_ref
        self.is_delayed = is_delayed
        self.is_counted = is_counted
        self.report = report


class Addresses(Protocol):
    """Addresses, as the kernel needs them to answer a request."""

    def is_address(self, key: Any) -> bool:
        """Tell an address from an id."""

    def is_alive(self, ref: Any) -> bool:
        """Tell whether the address is that of a living actor."""


Effect: TypeAlias = "Start | Stop | StopAll | Later | Report | Restarted"
Operation: TypeAlias = Generator[Effect, Any, Any]
