"""Clients and operators make and end everything, over and over: the memory of the broker stays as it is.

``LEVERET_CHURN_S`` sets the length; two hours are 7200. Memory is looked at in the second half.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

import pytest

from rigs.nodes import anonymous_bytes, serving
from soak.churn import churn

LENGTH_S = float(os.environ.get("LEVERET_CHURN_S", "600"))
GROWTH_BYTES_MAX = 3 << 20


@pytest.mark.slow
def test_memory_is_flat_while_everything_comes_and_goes(tmp_path: Path) -> None:
    end_s, number = time.monotonic() + LENGTH_S, 0
    used_bytes: list[int] = []
    with serving(tmp_path) as node:
        assert node.data is not None
        while time.monotonic() < end_s:
            churn(node.place, node.data, number)
            used_bytes.append(anonymous_bytes(node))
            number += 1

    quarters = [median(each) for each in _parts(used_bytes, 4)]
    assert quarters[3] - quarters[2] <= GROWTH_BYTES_MAX, (number, quarters)


def _parts(values: list[int], count: int) -> list[list[int]]:
    size = len(values) // count
    return [values[part * size :][:size] for part in range(count)]
