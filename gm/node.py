"""What the members of one node share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.gm.links import Links, local_links
from leveret.gm.records.memory_store import MemoryGroupStore
from leveret.gm.ring.limits import Limits

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.gm.records.store import GroupStore


class RingNode:
    """The runtime of a node's members, the store of their groups' records, and their links.

    Args:
        runtime: where the members run.
        store: of the records; by default one in memory, for groups within this process.
        links: between members; by default those within the runtime.
        limits: of every member.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: GroupStore | None = None,
        links: Links | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.runtime = runtime
        self.store: GroupStore = store or MemoryGroupStore()
        self.links: Links = links or local_links(runtime)
        self.limits = limits or Limits()
