from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from rigs.queues.stored_rig import StoreBench


@pytest.fixture
def bench(rng: random.Random) -> Iterator[StoreBench]:
    bench = StoreBench(rng, checkpoint_rows=4)
    yield bench
    bench.close()
