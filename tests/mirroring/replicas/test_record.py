"""Changes of a queue's record."""

from __future__ import annotations

from leveret.mirroring.replicas.record import QueueRecord, Replica

A, B, C = Replica("a", 1), Replica("b", 1), Replica("c", 1)
RECORD = QueueRecord(4, A, (A, B, C))


def test_a_promotion_takes_the_master_before_out() -> None:
    assert RECORD.promoted(B) == QueueRecord(5, B, (B, C))


def test_a_replica_that_starts_again_takes_the_place_of_its_earlier_life() -> None:
    assert RECORD.promoted(Replica("a", 2)) == QueueRecord(
        5, Replica("a", 2), (Replica("a", 2), B, C)
    )
    assert RECORD.promoted(Replica("c", 2)) == QueueRecord(5, Replica("c", 2), (Replica("c", 2), B))
    assert RECORD.grown(Replica("b", 2)) == QueueRecord(4, A, (A, C, Replica("b", 2)))


def test_mirrors_are_taken_out() -> None:
    assert RECORD.shrunk(frozenset({B})) == QueueRecord(4, A, (A, C))
