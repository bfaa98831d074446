"""OTP supervision: child specs, strategies, intensity, orderly stop.

``spec`` describes children and supervisors; ``core`` decides without I/O, with the strategies in ``groups`` and
``dynamic``; ``supervisor`` is the actor that carries the decisions out, ``on_thespian`` the same over Thespian's
system bases. ``tree`` writes a tree down, ``running`` runs it as a program or inside one, ``tree_view`` prints it.

The names for services are imported from here; each is loaded when it is first used, without the broker.
Imports actors and core only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.actors.links.sendable import message
    from leveret.actors.processes.command import CommandSpec
    from leveret.actors.service import ready
    from leveret.supervisors.backoff import Backoff
    from leveret.supervisors.metrics import Metrics
    from leveret.supervisors.running import ChildError, RunningTree, TreeFailedError, run, start
    from leveret.supervisors.spec import ChildSpec, SpecError, SupervisorSpec
    from leveret.supervisors.supervisor import Supervisor
    from leveret.supervisors.tree import Tree

__all__ = [
    "Backoff",
    "ChildError",
    "ChildSpec",
    "CommandSpec",
    "Metrics",
    "RunningTree",
    "SpecError",
    "Supervisor",
    "SupervisorSpec",
    "Tree",
    "TreeFailedError",
    "message",
    "ready",
    "run",
    "start",
]

_NAMES = {
    "leveret.actors.processes.command": ("CommandSpec",),
    "leveret.actors.links.sendable": ("message",),
    "leveret.actors.service": ("ready",),
    "leveret.supervisors.backoff": ("Backoff",),
    "leveret.supervisors.tree": ("Tree",),
    "leveret.supervisors.metrics": ("Metrics",),
    "leveret.supervisors.running": ("ChildError", "RunningTree", "TreeFailedError", "run", "start"),
    "leveret.supervisors.spec": ("ChildSpec", "SpecError", "SupervisorSpec"),
    "leveret.supervisors.supervisor": ("Supervisor",),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
