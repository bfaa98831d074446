"""Refs and cells: the address of an actor, and what the runtime has of the actor behind it.

A cell has mailbox, state and relations of one actor. It is reached through its ``Ref`` (``ref.cell``): the address is
the routing, there is no table to look in. When the actor dies the ref is pointed at ``DEAD_CELL``, so that holders of
the ref keep nothing of the actor alive, and the check for "is it dead" costs a sender nothing: the dead
cell has no mailbox, like an actor that never got a mail.

``state`` is a set of flags; 0 means idle, so a sender needs one test to know that the actor must be
put into the run queue.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.core.mypyc import mypyc_attr

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from leveret.actors.runtime.inbox import Levels, Mail
    from leveret.core.small_set import SmallSet

IDLE: Final = 0
QUEUED: Final = 1  # it is in the run queue
ACTIVE: Final = 2  # its code is on the call stack
SUSPENDED: Final = 4  # its mail waits until resume
BUSY: Final = 8  # a coroutine handler is under way
DOOMED: Final = 16  # an exit signal waits in ``doom``
DEAD: Final = 32
YIELDED: Final = 64  # it has asked to go on in a later turn
REMOTE: Final = 128  # of another node (``remote``): never queued, because its state is never 0
PROXY: Final = 256  # stands for an actor of another process, with an address of this node; never queued, either
# The mailbox is the way to an actor that runs elsewhere (``remote.RemoteInbox``).
AFAR: Final = REMOTE | PROXY

PLAIN: Final = 0
PRIORITY: Final = 1  # the class has ``prioritise``
COROUTINES: Final = 2  # the class says ``async_handlers``
UNACKED: Final = 4  # its start is not acknowledged


@mypyc_attr(allow_interpreted_subclasses=True)
class MailHandler(metaclass=ABCMeta):
    """An actor's instance, as the runtime sees it for each mail."""

    __slots__ = ()

    @abstractmethod
    def handle_mail(self, message: Any, sender: Ref | None) -> Any:
        """Handle one mail; what a coroutine handler returns is awaited."""


class NoHandler(MailHandler):
    """In the place of a dead actor, which gets no mail."""

    __slots__ = ()

    def handle_mail(self, message: Any, sender: Ref | None) -> Any:
        raise AssertionError(f"a dead actor gets {message!r}")


NO_HANDLER: Final = NoHandler()


class DeferredJob(Protocol):
    """Work in the bulk queue that belongs to no actor's turn, such as a timer's mail."""

    def run(self) -> Cell | None:
        """Do it; return the actor that has its turn now, None when nobody has."""


class Dispatcher(metaclass=ABCMeta):
    """The runtime of a cell, for links and timers, which know no more of it; ``Turns`` is the only one."""

    __slots__ = ()

    @abstractmethod
    def put(self, cell: Cell, mail: Mail) -> None:
        """Put a mail into a live actor's mailbox as it is."""

    @abstractmethod
    def defer(self, job: DeferredJob, cell: Cell) -> None:
        """Run a job of an actor in the bulk queue."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Ref:
    """The address of one incarnation of an actor, as all code but Thespian's sees it; each is an ``ActorRef``.

    Attributes:
        cell: the runtime's part; the common dead cell once the actor died.
        node: name and creation number of the runtime, ``name/creation``.
        num: number within the node, never given twice.
    """

    __slots__ = ("cell", "node", "num")

    def __init__(self, node: str, num: int, cell: Cell) -> None:
        self.cell = cell
        self.node = node
        self.num = num

    @property
    def is_alive(self) -> bool:
        return not self.cell.state & DEAD

    def __str__(self) -> str:
        return f"({self.node}.{self.num})"

    def __repr__(self) -> str:
        return f"<Ref {self.cell.describe() if self.is_alive else 'dead'} {self}>"


class Cell:
    """One actor as the runtime sees it."""

    __slots__ = (
        "account",
        "actor",
        "doom",
        "follows",
        "handler",
        "inbox",
        "kind",
        "label",
        "levels",
        "links",
        "monitors",
        "names",
        "parent",
        "ref",
        "shared_by",
        "starting",
        "state",
        "task",
        "timers",
        "turns",
        "watchers",
    )

    def __init__(self) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self.state: int = IDLE
        self.inbox: deque[Mail] | None = None  # waiting mails; made with the first one
        self.kind: int = PLAIN  # or flags: PRIORITY, COROUTINES, UNACKED
        self.handler: MailHandler = NO_HANDLER  # the instance, as each mail needs it
        self.levels: Levels | None = (
            None  # mails sorted by priority, for PRIORITY cells that have some
        )
        self.actor: Any = None  # the instance; None when dead
        self.doom: object = (
            None  # reason of the exit signal that will end it, or that it has ended for
        )
        self.label: str | Callable[[], str] = ""  # shown in logs and status
        self.links: SmallSet = None  # refs it is linked with
        self.monitors: SmallSet = None  # its monitors on others
        self.names: SmallSet = None  # registered for it
        # Where its long work is charged: the number of the actor at the root, as a connection's reader.
        self.account: int = 0
        self.follows: bool = False  # its account is that of who wakes it
        self.shared_by: int = (
            0  # while it waits in the bulk queue: the drain that had no time for it
        )
        self.parent: Ref | None = None  # the actor that started it with ``start_link``
        self.ref: Ref = None  # type: ignore[assignment]  # set by the runtime, which makes both
        # Takes the ``StartResult``; None when the start is acknowledged.
        self.starting: Callable[[Any], None] | None = None
        self.task: asyncio.Task[Any] | None = None  # a coroutine under way on its behalf
        self.timers: SmallSet = None  # timers that have not fired
        self.turns: Dispatcher = None  # type: ignore[assignment]  # the ``Turns`` of its runtime; likewise
        self.watchers: SmallSet = None  # monitors others have set on it

    def has_mail(self) -> bool:
        return bool(self.inbox) or bool(self.levels)

    def mail_count(self) -> int:
        return len(self.inbox or ()) + (len(self.levels) if self.levels is not None else 0)

    def remove_mail(self, matches: Callable[[Mail], bool]) -> None:
        """Take the first waiting mail that matches out of the mailbox."""
        inbox = self.inbox or deque()
        for index, waiting in enumerate(inbox):
            if matches(waiting):
                del inbox[index]
                return
        if self.levels is not None:
            self.levels.remove(matches)

    def describe(self) -> str:
        label = self.label() if callable(self.label) else self.label
        return label or type(self.actor).__name__


DEAD_CELL: Final = Cell()
DEAD_CELL.state = DEAD
DEAD_CELL.doom = "noproc"  # ``signals.NOPROC``
LOST_CELL: Final = Cell()  # of remote actors that cannot be reached any more
LOST_CELL.state = DEAD
LOST_CELL.doom = "noconnection"  # ``signals.NOCONNECTION``
