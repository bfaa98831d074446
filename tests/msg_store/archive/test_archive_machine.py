"""Any interleaving of the store, its collector and time with archived queues (``archive_machine``)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from rigs.store.collector.archive_machine import ArchiveMachine

TestArchive = pytest.mark.filterwarnings("error")(ArchiveMachine.TestCase)
TestArchive.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.slow
class TestArchiveForLong(ArchiveMachine.TestCase):
    settings = settings(max_examples=800, stateful_step_count=60)
