"""The worked example of the design: ten messages, a target of three, publish all, then fetch all.

(a) with the trigger of a publish; (b) reduced after each publish; (c) the same scaled down so that every
part is used. Letters: a alpha, b beta, g gamma; delta as (first, last, count).
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.queue_backing.variable.invariants import check
from leveret.queue_backing.variable.limits import Limits
from rigs.queues.variable_rig import MANUAL, UNBOUNDED, VariableRig

SCALED = Limits(segment=4, io_batch=1, slack=MANUAL)

Row = tuple[str, str, tuple[int, ...], str]

PUBLISHED_SCALED: list[Row] = [
    ("0a", "", (), ""),
    ("0a 1a", "", (), ""),
    ("0a 1a 2a", "", (), ""),
    ("0a 1a 2a", "3b", (), ""),
    ("0a 1a 2a", "3b 4b", (), ""),
    ("0a 1a 2a", "3b 4b 5b", (), ""),
    ("0a 1a 2a", "3b 4b 5b 6b", (), ""),
    ("0a 1a 2a", "3b 4b 5b 6b", (7, 7, 1), ""),
    ("0a 1a 2a", "3b 4b 5b", (6, 7, 2), "8b"),
    ("0a 1a 2a", "3b 4b", (5, 7, 3), "8b 9b"),
]
FETCHED_SCALED: list[Row] = [
    ("1a 2a", "3b 4b", (5, 7, 3), "8b 9b"),
    ("2a", "3b 4b", (5, 7, 3), "8b 9b"),
    ("", "3b 4b", (5, 7, 3), "8b 9b"),
    ("", "4b", (5, 7, 3), "8b 9b"),
    ("", "5g 6g 7g 8b 9b", (), ""),
    ("", "6g 7g 8b 9b", (), ""),
    ("", "7g 8b 9b", (), ""),
    ("", "8b 9b", (), ""),
    ("", "9b", (), ""),
    ("", "", (), ""),
]


def shape(rig: VariableRig) -> Row:
    check(rig.queue)
    now: dict[str, Any] = rig.shape()
    assert now["q1"] == ""
    return now["q4"], now["q3"], now["delta"], now["q2"]


def test_a_publishes_within_the_slack_move_nothing() -> None:
    rig = VariableRig(target=3)

    for _ in range(10):
        rig.publish_some(1)

    assert shape(rig) == (" ".join(f"{n}a" for n in range(10)), "", (), "")
    assert rig.index.writes == 0


def test_a_publish_beyond_the_slack_gets_below_the_target() -> None:
    rig = VariableRig(target=3)
    rig.publish_some(67)
    assert rig.queue.ram_count == 67

    rig.publish_some(1)

    assert rig.queue.ram_count == 3
    assert rig.index.writes == 65


def test_b_with_real_constants_the_rest_becomes_betas() -> None:
    rig = VariableRig(Limits(slack=MANUAL), target=3)

    for seq in range(10):
        rig.publish_some(1)
        rig.queue.resume()
        betas = " ".join(f"{n}b" for n in range(3, seq + 1))
        assert shape(rig) == (" ".join(f"{n}a" for n in range(min(3, seq + 1))), betas, (), "")
    assert rig.index.writes == 7

    for seq in range(10):
        assert rig.queue.fetch(1, UNBOUNDED, ack_required=True).seqs == [seq]
        assert rig.index.reads == max(0, seq - 2)
    assert sorted(rig.queue.pending.in_ram) == [0, 1, 2]
    assert sorted(rig.queue.pending.on_disk) == list(range(3, 10))


@pytest.mark.parametrize("persistent", [False, True])
def test_c_scaled_down_every_part_is_used(persistent: bool) -> None:
    def expected(rows: list[Row]) -> list[Row]:
        if not persistent:
            return rows
        return [
            (q4, q3.replace("b", "g"), delta, q2.replace("b", "g")) for q4, q3, delta, q2 in rows
        ]

    rig = VariableRig(SCALED, target=3)

    published = []
    for _ in range(10):
        rig.publish_some(1, persistent)
        rig.queue.resume()
        published.append(shape(rig))
    assert published == expected(PUBLISHED_SCALED)
    assert rig.index.writes == (10 if persistent else 7)
    assert rig.index.row_writes == (10 if persistent else 3)

    fetched = []
    for seq in range(10):
        assert rig.queue.fetch(1, UNBOUNDED, ack_required=True).seqs == [seq]
        fetched.append(shape(rig))
    assert fetched == expected(FETCHED_SCALED)
    assert rig.index.reads == 7

    rig.queue.ack(list(range(10)))
    assert not rig.index.rows
    assert not rig.index.contents
