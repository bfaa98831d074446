"""Tests: tests/attacks/pauses.py"""

from __future__ import annotations

import pytest

from attacks.pauses import Times, in_all, ms_without


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


@pytest.mark.parametrize(
    ("began_s", "ended_s", "ms"),
    [(0.0, 1.0, 1_000), (1.0, 3.0, 1_000), (2.5, 3.5, 500), (2.1, 2.9, 0), (0.0, 9.0, 7_000)],
)
def test_pauses_are_not_counted(began_s: float, ended_s: float, ms: float) -> None:
    assert ms_without(began_s, ended_s, [(2.0, 3.0), (5.0, 6.0)]) == pytest.approx(ms)
