"""VariableQueue against a model that keeps every message in two dicts, whatever the disk does.

Tests: queue_backing/variable/invariants.py
"""

from __future__ import annotations

from hypothesis import settings

from rigs.queues.variable_machine import VariableQueueMachine

VariableQueueMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None
)
TestVariableQueue = VariableQueueMachine.TestCase
