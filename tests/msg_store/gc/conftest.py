from __future__ import annotations

import random

import pytest

from rigs.store.collector.collector_rig import CollectorRig


@pytest.fixture
def rig(rng: random.Random) -> CollectorRig:
    return CollectorRig(rng)
