"""Guaranteed multicast: every member of a group gets every message, in its sender's order, whoever dies.

``group`` is the interface for tasks, ``actor`` the actor that a member is, ``callbacks`` what it tells its user,
``node`` what the members of a node share, ``links`` how members reach each other, ``wire`` the form of frames between
nodes, ``ring`` the state machines, ``records`` the record of a group and what keeps it.
Imports actors and core only.
"""

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
