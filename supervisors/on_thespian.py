"""Supervisors in an actor system of Thespian: the same specs, on its own system bases.

::

    system = ActorSystem("multiprocTCPBase")
    shop = ThespianSupervisor.start(system, SupervisorSpec("rest_for_one", children=(
        ChildSpec("prices", Prices),      # plain Thespian actors, or OtpActor classes
        ChildSpec("baskets", Baskets),
    )))
    shop.which_children()
    shop.stop()

Works on ``simpleSystemBase``, ``multiprocTCPBase``, ``multiprocUDPBase`` and ``AsyncioBase``. The
supervisor is the one of ``leveret.supervisors.supervisor``, in a Thespian actor of its own, as are its
children; on the process bases each is a process, a spec is pickled on its way, and classes must be
found by their names. The Thespian actors around them are in ``leveret.actors.thespian.port``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.actors.thespian.mail import Call
from leveret.actors.thespian.start import START_S, STOP_S, start, stop
from leveret.core.errors import ActorError
from leveret.supervisors.requests import (
    CountChildren,
    DeleteChild,
    GetChildSpec,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Hashable

ASK_S: Final = 30.0
ASK_AGAIN_S: Final = 3.0
# Requests that change nothing, with the types of their answers.
_READ_REQUESTS: Final = {WhichChildren: list, CountChildren: dict, GetChildSpec: tuple}


class ThespianSupervisor:
    """A supervisor that runs in a Thespian system, as the program outside sees it.

    Thespian gives a program one mailbox: a message of another actor that arrives while the
    supervisor is asked is taken for its answer. Programs that listen to actors as well let each
    part have a ``system.private()``, where the base has it.

    Attributes:
        system: where it runs.
        address: its address; actors send it ``Call(WhichChildren())`` and the like.
    """

    def __init__(self, system: Any, address: Any) -> None:
        self.system = system
        self.address = address

    @classmethod
    def start(
        cls,
        system: Any,
        supervisor: SupervisorSpec | type[Supervisor],
        *args: Any,
        label: str = "",
        timeout_s: float = START_S,
    ) -> ThespianSupervisor:
        """Start a supervisor and its children.

        Args:
            system: Thespian's ``ActorSystem``.
            supervisor: a spec, or a subclass of ``Supervisor`` whose ``init`` returns one.
            args: for that ``init``.
            label: its name in reports.
            timeout_s: how long all of that may take.

        Raises:
            StartError: a child did not start, or not in time.
        """
        if isinstance(supervisor, SupervisorSpec):
            supervisor, args = Supervisor, (supervisor, *args)
        address = start(system, supervisor, *args, label=label, timeout_s=timeout_s)
        return cls(system, address)

    def stop(self, timeout_s: float = STOP_S) -> Any:
        """Stop the children, the newest first, and the supervisor; return its exit reason.

        ``system.shutdown()`` is Thespian's way: everything at once.

        Raises:
            ActorError: that took longer than ``timeout_s``.
        """
        return stop(self.system, self.address, timeout_s)

    def ask(self, request: Any, timeout_s: float = ASK_S) -> Any:
        """Send one of ``supervisors.requests``, return the answer; ActorError: it is too late.

        On ``multiprocUDPBase`` a request that changes nothing is sent again until it is answered, each time from a
        mailbox of its own, so that an answer that comes too late is not taken for another's. Datagrams may be
        lost there, and Linux may give the mailbox the port of an actor, whose mail then comes to the mailbox: if it
        is the supervisor's port, the request itself.
        """
        kind = _READ_REQUESTS.get(type(request))
        if kind is None or "(UDP|" not in str(self.address):
            answer = self.system.ask(self.address, Call(request), timeout_s)
        else:
            answer = self._ask_until(request, kind, timeout_s)
        if answer is None:
            raise ActorError(f"supervisor {self.address} has not answered within {timeout_s} s")
        return answer

    def _ask_until(self, request: Any, kind: type, timeout_s: float) -> Any:
        """Ask again and again until an answer of this type comes; return None if none does."""
        left_s = timeout_s
        while left_s > 0:
            with self.system.private() as mailbox:
                answer = mailbox.ask(self.address, Call(request), min(ASK_AGAIN_S, left_s))
            if isinstance(answer, kind):
                return answer
            left_s -= ASK_AGAIN_S
        return None

    def which_children(self) -> list[tuple[Hashable, Any, str]]:
        """List ``(id, address | None | "restarting", type)``, newest first; dynamic ids are None."""
        return list(self.ask(WhichChildren()))

    def count_children(self) -> dict[str, int]:
        return dict(self.ask(CountChildren()))

    def address_of(self, child_id: Hashable) -> Any:
        """Return the address of the child with this id; None if it does not run."""
        for found_id, address, _ in self.which_children():
            if found_id == child_id:
                return None if address == "restarting" else address
        return None

    def start_child(self, child: ChildSpec | tuple[Any, ...] = ()) -> Any:
        return self.ask(StartChild(child))

    def terminate_child(self, child: Hashable) -> Any:
        """Stop a child by id, or a dynamic one by its address; see ``TerminateChild``."""
        return self.ask(TerminateChild(child))

    def restart_child(self, child: Hashable) -> Any:
        return self.ask(RestartChild(child))

    def delete_child(self, child: Hashable) -> Any:
        return self.ask(DeleteChild(child))

    def get_childspec(self, child: Hashable) -> Any:
        return self.ask(GetChildSpec(child))
