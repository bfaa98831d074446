"""Children and parents for tests of real supervisors."""

from __future__ import annotations

from typing import Any

from leveret.actors.actor import LATER, OtpActor
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor

SIMPLE = "simple_one_for_one"


class Worker(OtpActor):
    """Obeys its mail; notes its end."""

    def init(self, ends: list[Any] | None = None, name: str = "") -> None:
        self.ends, self.name = ends, name

    def handle_mail(self, message: Any, sender: Any) -> None:
        message(self)

    def terminate(self, reason: Any) -> None:
        if self.ends is not None:
            self.ends.append((self.name, reason, self.runtime.clock.monotonic_s()))


class Slow(Worker):
    """Traps exits and takes its time to obey them."""

    trap_exits = True

    def init(self, ends: list[Any], name: str, needs_s: float) -> None:
        super().init(ends, name)
        self.needs_s = needs_s

    def handle_mail(self, message: Any, sender: Any) -> None:
        if message == "now":
            self.stop("shutdown")
        elif callable(message):
            message(self)
        else:
            self.start_timer(self.needs_s, "now")


class Late(OtpActor):
    """Acknowledges its start when it is told to."""

    def init(self, seen: list[Any]) -> Any:
        seen.append(self.ref)
        return LATER

    def handle_mail(self, message: Any, sender: Any) -> None:
        self.started() if message == "ready" else self.stop(message)


class Refusing(OtpActor):
    def init(self) -> None:
        self.stop("nope")


class Above(OtpActor):
    """The parent of the supervisor under test."""

    trap_exits = True

    def init(self) -> None:
        self.mail: list[Any] = []

    def handle_mail(self, message: Any, sender: Any) -> None:
        if callable(message):
            message(self)
        else:
            self.mail.append(message)


class Notes(OtpActor):
    """Keeps its mail."""

    def init(self) -> None:
        self.seen: list[Any] = []

    def handle_mail(self, message: Any, sender: Any) -> None:
        self.seen.append(message)


class Told(OtpActor):
    """Reports its state to an actor, from any process; crashes when it gets mail."""

    def init(self, notes: Any) -> None:
        self.notes = notes
        self.post(notes, self.ref)

    def handle_mail(self, message: Any, sender: Any) -> None:
        raise ValueError(message)

    def terminate(self, reason: Any) -> None:
        self.post(self.notes, str(reason))


class Apart(Supervisor):
    """A supervisor for a process of its own."""

    def init(self, notes: Any) -> SupervisorSpec:
        return SupervisorSpec(children=(ChildSpec("told", Told, (notes,)),))


def child_refs(ref: Any) -> dict[Any, Any]:
    return {c.spec.id: c.ref for c in ref.cell.actor.supervisor_core.members()}


def crash(_: Any) -> None:
    raise ValueError("boom")


def one(*children: ChildSpec, **flags: Any) -> SupervisorSpec:
    return SupervisorSpec(children=children, **flags)
