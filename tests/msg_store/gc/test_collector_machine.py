"""Any interleaving of the store and its collector, chosen by Hypothesis (``collector_machine``)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from rigs.store.collector.collector_machine import CollectorMachine

TestCollector = pytest.mark.filterwarnings("error")(CollectorMachine.TestCase)
TestCollector.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
class TestCollectorForLong(CollectorMachine.TestCase):
    settings = settings(max_examples=800, stateful_step_count=60)
