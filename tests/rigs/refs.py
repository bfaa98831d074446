"""Addresses for tests without actors."""

from __future__ import annotations

from functools import cache

from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import Cell, Ref


@cache
def named(name: str) -> Ref:
    """Return the ref of that name: another one for each name, and alive."""
    cell = Cell()
    cell.label = name
    cell.ref = ActorRef(name, 0, cell)
    return cell.ref
