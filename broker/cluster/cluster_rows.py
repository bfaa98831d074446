"""The listener of a cluster's metadata: changed rows, and whether the node may serve clients.

Changes that arrive between the load of the rows and the start of the vhosts are kept until ``begin``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from leveret.broker.cluster.other_changes import agree, apply_changes
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leveret.broker.node.node import Node
    from leveret.metadata.interface import SharedMetadata
    from leveret.metadata.tables import Row


log = logger(__name__)

LOST_CLUSTER: Final = (
    "this node has lost its cluster's store, and serves clients again when it is back"
)


class Changed(Protocol):
    """A change of rows (``metadata.etcd.replica.Changed``)."""

    @property
    def deletes(self) -> Sequence[Row]: ...

    @property
    def puts(self) -> Sequence[Row]: ...

    @property
    def is_own(self) -> bool: ...


class ClusterRows:
    """Applies the rows of a cluster to one node; the ``listener`` of its metadata.

    Args:
        node: the node; it has no rows before ``begin``.
        shared: where its rows are.
    """

    def __init__(self, node: Node, shared: SharedMetadata) -> None:
        self._node = node
        self._shared = shared
        node.metadata.shared = shared
        node.metadata.on_settled = self._settled
        self._kept: list[Changed] | None = []

    def begin(self) -> None:
        """Apply the changes kept so far, and from now on each at once: the node has the loaded rows."""
        kept, self._kept = self._kept, None
        for changed in kept or ():
            self.changed(changed)

    def changed(self, changed: Changed) -> None:
        """Apply a change of rows, by this node or another."""
        if self._kept is not None:
            self._kept.append(changed)
        else:
            apply_changes(self._node, changed.puts, changed.deletes, changed.is_own)
            if changed.is_own:
                agree(self._node, self._shared, [*changed.deletes, *changed.puts])

    def _settled(self, rows: Sequence[Row]) -> None:
        if self._kept is None:
            agree(self._node, self._shared, rows)

    def live(self, is_live: bool) -> None:
        """Serve clients, or close all connections at once and refuse new ones."""
        connections = self._node.connections
        if is_live == (not connections.refusal):
            return
        connections.refusal = "" if is_live else LOST_CLUSTER
        if not is_live:
            closed = connections.close_where(lambda _: True, LOST_CLUSTER)
            log.error("clients are not served, the node has lost its cluster closed=%d", closed)
        else:
            log.info("clients are served again")
