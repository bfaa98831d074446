"""Links between members on several nodes.

A frame travels as ``wire`` says, its messages untouched, beside the mail that carries it. Two members that existed
when their nodes lost each other have ended for each other, also when the nodes are linked again: one of them
may have missed what the other has sent. Both nodes know which pairs these are (``Node.were_parted``), so neither
member waits for the other.

A member whose node has been started again has ended, and is not merely out of reach: no two nodes have the same name,
so the process that had it before is gone. Therefore members take over a group whose nodes were all killed and started
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.actors.links.sendable import Pieces, register
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import DEAD_CELL, LOST_CELL, Ref
from leveret.gm.links import ActorLinks, FromPeer
from leveret.gm.records.group import MemberId
from leveret.gm.wire import decode, encode, member_of

if TYPE_CHECKING:
    from leveret.actors.links.node import Node


def node_links(node: Node) -> ActorLinks:
    """Return links between the members of this node, and with the members of linked nodes."""

    def find(own: MemberId, member: MemberId) -> Ref:
        if node.is_past(member.node):
            return ActorRef(member.node, member.number, DEAD_CELL)
        if node.were_parted(own.number, member.node, member.number):
            return ActorRef(member.node, member.number, LOST_CELL)
        return node.ref(member.node, member.number)

    return ActorLinks(node.runtime, find)


def _to_parts(mail: FromPeer) -> list[Any]:
    return [list(mail.sender), Pieces(encode(mail.frame))]


def _from_parts(parts: list[Any]) -> FromPeer:
    sender, frame = parts
    return FromPeer(member_of(sender), decode(frame))


register(FromPeer, _to_parts, _from_parts)
