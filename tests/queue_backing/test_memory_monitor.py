"""Formulas by table: rates, RAM duration, permitted betas, the desired duration, who must hear of it.

Tests: queue_backing/variable/ram_target.py
"""

from __future__ import annotations

import pytest

from leveret.queue_backing.memory_monitor import MemoryMonitor, desired_duration_s
from leveret.queue_backing.variable.limits import Limits
from leveret.queue_backing.variable.ram_target import moving_average, reduce_above
from rigs.queues.variable_rig import UNBOUNDED, VariableRig

INFINITE = float("inf")


def test_a_rate_has_a_half_life_of_five_seconds() -> None:
    rate, seen = 0.0, []
    for _ in range(4):
        rate = moving_average(rate, 5_000, 5.0)
        seen.append(rate)

    assert seen == pytest.approx([500, 750, 875, 937.5])


@pytest.mark.parametrize(("elapsed_s", "rate"), [(0.0, 7.0), (-1.0, 7.0), (1e-311, 7.0)])
def test_no_time_changes_no_rate(elapsed_s: float, rate: float) -> None:
    assert moving_average(7.0, 0, elapsed_s) == pytest.approx(rate)
    assert moving_average(7.0, 3, elapsed_s) < 8


def test_a_queue_brings_its_rates_up_to_date_every_hundred_messages() -> None:
    rig = VariableRig()
    rig.clock.jump(5.0)
    rig.publish_some(100)
    assert rig.queue.ram.rates.incoming == 0

    rig.publish_some(1)

    assert rig.queue.ram.rates.incoming == pytest.approx(101 / 5 / 2)
    assert rig.queue.ram.incoming == 0


def test_a_ram_duration_is_the_mean_of_two_samples() -> None:
    rig = VariableRig()
    assert rig.queue.ram_duration() == INFINITE, "nothing moves"
    rig.publish_some(100)
    rig.queue.fetch(40, UNBOUNDED, ack_required=True)
    rig.clock.jump(5.0)

    rates = [100 / 5 / 2, 40 / 5 / 2, 40 / 5 / 2, 0]  # in, out, ack in, ack out
    assert rig.queue.ram_duration() == pytest.approx((0 + 100) / (4 * sum(rates)))
    assert rig.queue.ram_duration() == pytest.approx((100 + 100) / (4 * sum(rates)))
    rig.queue.fetch(60, UNBOUNDED, ack_required=False)
    assert rig.queue.ram_duration() == pytest.approx((100 + 40) / (4 * sum(rates)))


def test_a_queue_at_rest_has_no_duration() -> None:
    rig = VariableRig()
    rig.publish_some(10)
    rig.clock.jump(1.0)
    assert rig.queue.ram_duration() < INFINITE

    rig.clock.jump(100.0)

    assert rig.queue.ram_duration() == INFINITE


@pytest.mark.parametrize(
    ("target", "above"),
    [(0, 64), (3, 67), (1_024, 1_088), (1_600, 1_700), (16_000, 17_000), (INFINITE, INFINITE)],
)
def test_a_publish_reduces_above_the_target_and_some_slack(target: float, above: float) -> None:
    assert reduce_above(target, 64) == above


def test_a_duration_becomes_a_target_by_the_rates() -> None:
    rig = VariableRig()
    rates = rig.queue.ram.rates
    rates.incoming, rates.outgoing, rates.ack_in, rates.ack_out = 10.0, 5.0, 2.5, 2.4

    rig.queue.set_ram_duration_target(2.0)
    assert rig.queue.ram.target == 39

    rig.queue.set_ram_duration_target(INFINITE)
    assert rig.queue.ram.target == INFINITE


def test_only_a_lower_target_pages_at_once() -> None:
    rig = VariableRig()
    rig.publish_some(50)

    rig.set_target(40)
    assert rig.queue.ram_count == 40
    rig.publish_some(5)
    rig.set_target(42)
    assert rig.queue.ram_count == 45
    rig.set_target(INFINITE)
    assert rig.queue.ram_count == 45


@pytest.mark.parametrize(
    ("behind", "target", "permitted"),
    [
        (1_000_000, 100_000, 90_910),
        (100_000, 10_000, 9_091),
        (5_000, 10_000, 3_334),
        (10, 5, 2_048),
    ],
)
def test_betas_permitted(behind: int, target: int, permitted: int) -> None:
    rig = VariableRig()
    rig.queue.count = behind  # nothing of it in Q1 or Q4

    assert rig.queue.permitted_betas(target) == permitted


def test_betas_permitted_at_the_ends() -> None:
    rig = VariableRig(Limits(segment=4))
    assert rig.queue.permitted_betas(0) == INFINITE, "an empty queue has none"

    rig.publish_some(9)
    assert rig.queue.permitted_betas(0) == 0
    rig.queue.use_paged().q3 = rig.queue.q4
    assert rig.queue.permitted_betas(0) == 4
    rig.queue.mode = "lazy"
    assert rig.queue.permitted_betas(7) == 7


@pytest.mark.parametrize(
    ("ratio", "sum_s", "count", "alarm", "desired"),
    [
        (0.9, 10.0, 2, True, INFINITE),
        (INFINITE, 10.0, 2, True, INFINITE),
        (INFINITE, 10.0, 2, False, 0.0),
        (0.49, 10.0, 2, False, INFINITE),
        (0.9, 0.0, 0, False, INFINITE),
        (0.5, 10.0, 2, False, 11.0),
        (0.94, 0.0, 1, False, 1 / 0.94),
        (0.95, 10.0, 2, False, 5 / 0.95),
        (2.0, 10.0, 2, False, 2.5),
    ],
)
def test_the_desired_duration(
    ratio: float, sum_s: float, count: int, alarm: bool, desired: float
) -> None:
    assert desired_duration_s(ratio, sum_s, count, alarm) == pytest.approx(desired)


def test_queues_hear_of_a_shorter_duration_when_they_keep_more() -> None:
    monitor = MemoryMonitor()
    assert monitor.report("long", 30.0) == INFINITE
    assert monitor.report("short", 1.0) == INFINITE
    assert monitor.report("idle", INFINITE) == INFINITE

    told = monitor.update(used_bytes=100, limit_bytes=100, disk_alarm=False)

    assert told == [("long", 15.5), ("idle", 15.5)]
    assert monitor.update(100, 100, disk_alarm=False) == [], "told already"
    assert monitor.report("short", 1.0) == 15.5
    assert monitor.update(50, 100, disk_alarm=False) == [], "longer: they hear with their reports"
    assert monitor.desired_s == pytest.approx((31 + 1) / 2 / 0.5)


def test_with_a_disk_alarm_queues_hear_that_paging_stops() -> None:
    monitor = MemoryMonitor()
    monitor.report("q", 8.0)
    monitor.report("p", 8.0)
    monitor.update(100, 100, disk_alarm=False)
    assert monitor.report("p", 8.0) == 8.0

    told = monitor.update(100, 100, disk_alarm=True)

    assert told == [("p", INFINITE)], "the other was never told of less"


def test_a_queue_that_is_gone_or_idle_does_not_count() -> None:
    monitor = MemoryMonitor()
    monitor.report("gone", 90.0)
    monitor.report("idle", 0.1)
    monitor.report("there", 4.0)
    monitor.deregister("gone")
    monitor.report("idle", INFINITE)

    monitor.update(96, 100, disk_alarm=False)
    assert monitor.desired_s == pytest.approx(4.0 / 0.96)
    monitor.deregister("there")
    monitor.deregister("there")
    monitor.update(96, 100, disk_alarm=False)
    assert monitor.desired_s == INFINITE


def test_queues_that_have_ended_are_found_a_few_at_a_time() -> None:
    monitor = MemoryMonitor()
    for queue in range(10):
        monitor.report(queue, 1.0)
    looked_at: list[int] = []

    def is_odd(queue: int) -> bool:
        looked_at.append(queue)
        return queue % 2 == 1

    counts = []
    for _ in range(3):
        monitor.forget_some(4, is_odd)
        counts.append(monitor.count)

    assert looked_at == [*range(10), 0, 2]
    assert counts == [8, 6, 5]


def test_a_queue_that_has_ended_is_not_held_until_the_next_reports() -> None:
    monitor = MemoryMonitor()
    for queue in ("there", "gone"):
        monitor.active[queue] = None

    monitor.deregister("gone")

    assert monitor.take_active() == ["there"]
