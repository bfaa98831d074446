"""Tests: tests/attacks/pauses.py"""

from __future__ import annotations

import pytest

from attacks.pauses import Times, in_all


@pytest.mark.parametrize(
    ("times", "all_late"),
    [
        ([[(1.0, 2.0)]], [(1.0, 2.0)]),
        ([[(1.0, 2.0)], []], []),
        ([[(1.0, 2.0)], [(2.0, 3.0)]], []),
        ([[(1.0, 3.0)], [(2.0, 4.0)]], [(2.0, 3.0)]),
        (
            [[(1.0, 3.0), (5.0, 6.0)], [(0.0, 1.5), (2.0, 5.5)]],
            [(1.0, 1.5), (2.0, 3.0), (5.0, 5.5)],
        ),
        ([[(1.0, 4.0)], [(2.0, 5.0)], [(3.0, 6.0)]], [(3.0, 4.0)]),
    ],
)
def test_the_machine_stands_still_while_all_processors_are_late(
    times: list[Times], all_late: Times
) -> None:
    assert in_all(times) == all_late
