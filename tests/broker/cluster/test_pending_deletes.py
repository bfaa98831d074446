"""Deletions that a node owes the metadata store, and another node carries out."""

from __future__ import annotations

from leveret.broker.cluster.other_changes import apply_changes
from leveret.metadata.tables import ExchangeRow
from rigs.cluster.etcd_cluster import EtcdCluster


def test_a_deletion_that_another_node_has_made_is_owed_no_more() -> None:
    """It would delete what is declared anew under this name."""
    cluster = EtcdCluster("ab")
    node, row = cluster["b"].node, ExchangeRow("/", "e", "direct")
    node.metadata.pending.delete([row])

    apply_changes(node, [], [row])

    assert not node.metadata.pending.deletes
