"""The policies of batching: what waits in each, and how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from leveret.core.batching import (
    BALANCED,
    LOW,
    POLICIES,
    AckPauses,
    Batching,
    BusyWaits,
    FlushWindow,
    PublishPauses,
)
from leveret.core.settings import BrokerSettings

LONGEST_S: dict[str, Callable[[Any], float]] = {
    "acks": lambda each: each.pause_s * each.latest,
    "publishes": lambda each: each.backlog_pause_s,
    "flushes": lambda each: 2 * each.window_s,
    "busy_wait": lambda each: each.wait_s,
}


@pytest.mark.parametrize(
    ("wait", "balanced", "longest_s"),
    [
        ("acks", AckPauses(16, 8, 0.003, 0.010, 1.5, 5, 32, 4), 0.015),
        ("publishes", PublishPauses(0.001, 0.002, 0.02, 4, 64, 4, 1 << 18, 16, 64, 0.8, 1024, 65_536), 0.002),
        ("flushes", FlushWindow(0.010, 32, 4, 16), 0.020),
        ("busy_wait", BusyWaits(0.000_05, 1, 2, 32, 256, 2), 0.000_05),
    ],
)  # fmt: skip
def test_what_waits_and_how_long_at_most(wait: str, balanced: object, longest_s: float) -> None:
    assert getattr(BALANCED, wait) == balanced
    assert LONGEST_S[wait](balanced) == pytest.approx(longest_s)


def test_with_low_latency_only_the_sleep_of_the_loop_waits() -> None:
    assert Batching(None, None, None, BALANCED.busy_wait) == LOW
    assert sorted(LONGEST_S) == sorted(each.name for each in fields(Batching))


def test_the_setting_names_them_and_is_balanced_by_default() -> None:
    assert list(POLICIES) == ["low", "balanced"]
    assert BrokerSettings(latency="low").batching is LOW
    assert BrokerSettings().batching is BALANCED
