"""Guaranteed multicast: every member of a group gets every message, in its sender's order, whoever dies.

``group`` is the interface for tasks, ``actor`` the actor of a member, ``callbacks`` its calls of the user's code,
``node`` the services that the members of a node share, ``links`` the links between members, ``wire`` the form of
frames between nodes, ``ring`` the state machines, ``records`` the record of a group and its stores.

The names for users are imported from here; each is loaded when it is first used.
Imports etcd, actors and core only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.gm.callbacks import Become, Callbacks, Stop
    from leveret.gm.group import Group, GroupEndedError
    from leveret.gm.node import RingNode
    from leveret.gm.records.group import GmError, MemberId

__all__ = [
    "Become",
    "Callbacks",
    "GmError",
    "Group",
    "GroupEndedError",
    "MemberId",
    "RingNode",
    "Stop",
]

_NAMES = {
    "leveret.gm.callbacks": ("Become", "Callbacks", "Stop"),
    "leveret.gm.group": ("Group", "GroupEndedError"),
    "leveret.gm.node": ("RingNode",),
    "leveret.gm.records.group": ("GmError", "MemberId"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
