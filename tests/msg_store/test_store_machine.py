"""Any interleaving of queues, flush, errors and crashes, chosen by Hypothesis (``store_machine``).

Tests: msg_store/recovery/rebuild.py
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from rigs.store.store_machine import StoreMachine

TestStore = pytest.mark.filterwarnings("error")(StoreMachine.TestCase)
TestStore.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.slow
class TestStoreForLong(StoreMachine.TestCase):
    settings = settings(max_examples=800, stateful_step_count=60)
