"""Rings on a simulated network."""

from __future__ import annotations

import pytest

from leveret.testing.gm.ring import SimulatedRing


@pytest.fixture
def ring(seed: int) -> SimulatedRing:
    return SimulatedRing(seed)
