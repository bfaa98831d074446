"""The rows of a node as of a revision: what hangs on what, and what is told."""

from __future__ import annotations

import pytest

from leveret.core.errors import StoreError
from leveret.etcd.key_values import Event
from leveret.etcd.key_values import Row as Stored
from leveret.metadata.etcd.codec import Keys, packed_entry
from leveret.metadata.etcd.replica import Changed, Replica
from leveret.metadata.tables import BindingRow, ExchangeRow, QueueRow, Row, UserRow, VhostRow

KEYS = Keys("/leveret", "n")
VHOST, EXCHANGE, QUEUE = VhostRow("/"), ExchangeRow("/", "x", "topic"), QueueRow("/", "q")
BINDING = BindingRow("/", "x", "queue", "q", b"k")


def put(row: Row, revision: int, incarnation: int, *parents: int) -> Event:
    hangs_on = tuple(zip(KEYS.parents(row), parents, strict=True))
    return Event(KEYS.row(row), packed_entry(row, incarnation, hangs_on), revision)


def gone(row: Row, revision: int) -> Event:
    return Event(KEYS.row(row), None, revision)


@pytest.fixture
def replica() -> Replica:
    made = Replica(KEYS)
    made.apply([put(VHOST, 2, 1)], 2)
    made.apply([put(EXCHANGE, 3, 10, 1), put(QUEUE, 3, 20, 1)], 3)
    made.apply([put(BINDING, 4, 0, 1, 10, 20)], 4)
    return made


def test_a_queue_takes_its_bindings_with_it_and_they_stay_away(replica: Replica) -> None:
    assert replica.apply([gone(QUEUE, 5)], 5) == Changed(5, [QUEUE, BINDING], [])
    assert list(replica.dead) == [KEYS.row(BINDING)]

    assert replica.apply([put(QUEUE, 6, 21, 1)], 6) == Changed(6, [], [QUEUE])
    assert KEYS.row(BINDING) not in replica.live
    assert replica.apply([gone(BINDING, 7)], 7) == Changed(7, [], [])
    assert not replica.dead


def test_a_binding_of_another_node_to_a_queue_that_goes_is_never_seen(replica: Replica) -> None:
    late = BindingRow("/", "x", "queue", "q", b"late")
    replica.apply([gone(QUEUE, 5)], 5)

    assert replica.apply([put(late, 6, 0, 1, 10, 20)], 6) == Changed(6, [], [])
    assert list(replica.dead) == [KEYS.row(BINDING), KEYS.row(late)]


def test_a_vhost_takes_all_with_it(replica: Replica) -> None:
    changed = replica.apply([gone(VHOST, 5)], 5)

    assert changed == Changed(5, [VHOST, EXCHANGE, QUEUE, BINDING], [])
    assert replica.apply([put(VHOST, 6, 2)], 6) == Changed(6, [], [VHOST])


def test_the_order_of_keys_within_a_revision_does_not_count() -> None:
    events = [
        put(VHOST, 2, 1),
        put(EXCHANGE, 2, 10, 1),
        put(QUEUE, 2, 20, 1),
        put(BINDING, 2, 0, 1, 10, 20),
    ]
    for order in (events, events[::-1]):
        assert Replica(KEYS).apply(order, 2) == Changed(2, [], [VHOST, EXCHANGE, QUEUE, BINDING])


def test_a_row_that_is_written_over_is_told_as_put_and_keeps_what_hangs_on_it(
    replica: Replica,
) -> None:
    changed = replica.apply([put(VhostRow("/", "new"), 5, 1)], 5)

    assert changed == Changed(5, [], [VhostRow("/", "new")])
    assert KEYS.row(BINDING) in replica.live


def test_a_row_made_again_is_told_as_deleted_and_put(replica: Replica) -> None:
    assert replica.apply([put(QUEUE, 5, 21, 1)], 5) == Changed(5, [QUEUE, BINDING], [QUEUE])


def test_a_revision_that_was_applied_changes_nothing(replica: Replica) -> None:
    assert replica.apply([gone(QUEUE, 3)], 3) == Changed(4, [], [])
    assert replica.applied == 4


def test_loading_tells_the_difference(replica: Replica) -> None:
    user = UserRow("guest")
    rows = [put(VHOST, 2, 1), put(EXCHANGE, 8, 10, 1), put(user, 7, 5)]
    changed = replica.load([Stored(e.key, e.value or b"", e.revision) for e in rows], 9)

    assert (changed.deletes, changed.puts) == ([QUEUE, BINDING], [user, EXCHANGE])
    assert replica.applied == 9


def test_loading_decodes_only_what_was_written_since(replica: Replica) -> None:
    revisions = {
        KEYS.row(VHOST): 2,
        KEYS.row(EXCHANGE): 3,
        KEYS.row(QUEUE): 3,
        KEYS.row(BINDING): 4,
    }
    stored = [Stored(key, b"not to be decoded", each) for key, each in revisions.items()]

    assert replica.load(stored, 9) == Changed(9, [], [])
    assert len(replica.live) == 4


def test_what_was_decoded_before_a_load_is_as_the_load_has_it(replica: Replica) -> None:
    user = UserRow("guest")
    old, new = put(user, 7, 5), put(user, 8, 6)
    stored = [Stored(each.key, each.value or b"", each.revision) for each in (old, new)]
    damaged = Stored(KEYS.row(UserRow("damaged")), b"x", 9)

    replica.decode([stored[0], damaged])

    assert replica.live.keys().isdisjoint([old.key, damaged.key]), "nothing is loaded"
    rows = [put(VHOST, 2, 1), put(EXCHANGE, 3, 10, 1), put(QUEUE, 3, 20, 1)]
    there = [Stored(each.key, each.value or b"", each.revision) for each in rows]
    with pytest.raises(StoreError, match="damaged"):
        replica.load([*there, damaged], 9)
    replica.load([*there, stored[1]], 9)
    assert replica.live[new.key].revision == 8


def test_an_etcd_that_went_back_is_refused(replica: Replica) -> None:
    with pytest.raises(StoreError, match="restored from a backup"):
        replica.load([], 3)
    assert len(replica.live) == 4


def test_a_damaged_row_changes_nothing(replica: Replica) -> None:
    with pytest.raises(StoreError, match="damaged"):
        replica.apply([gone(EXCHANGE, 5), Event(KEYS.row(QUEUE), b"x", 5)], 5)
    assert replica.applied == 4
    assert len(replica.live) == 4
