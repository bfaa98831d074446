"""OTP supervision: child specs, strategies, intensity, orderly stop.

The names for services are imported from here; each is loaded when it is first used, without the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.actors.processes.command import CommandSpec
    from leveret.actors.processes.sendable import message
    from leveret.actors.service import ready
    from leveret.supervisors.backoff import Backoff
    from leveret.supervisors.building import Tree
    from leveret.supervisors.metrics import Metrics
    from leveret.supervisors.running import ChildError, RunningTree, TreeFailedError, run, start
    from leveret.supervisors.spec import ChildSpec, SpecError, SupervisorSpec
    from leveret.supervisors.supervisor import Supervisor

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

_HOMES = {
    "Backoff": "leveret.supervisors.backoff",
    "ChildError": "leveret.supervisors.running",
    "ChildSpec": "leveret.supervisors.spec",
    "CommandSpec": "leveret.actors.processes.command",
    "Metrics": "leveret.supervisors.metrics",
    "RunningTree": "leveret.supervisors.running",
    "SpecError": "leveret.supervisors.spec",
    "Supervisor": "leveret.supervisors.supervisor",
    "SupervisorSpec": "leveret.supervisors.spec",
    "Tree": "leveret.supervisors.building",
    "TreeFailedError": "leveret.supervisors.running",
    "message": "leveret.actors.processes.sendable",
    "ready": "leveret.actors.service",
    "run": "leveret.supervisors.running",
    "start": "leveret.supervisors.running",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found
