from __future__ import annotations

from leveret.spark.publish.rate import Rate


def sent_within(rate: Rate, start_s: float, end_s: float) -> int:
    now_s, count = start_s, 0
    while (now_s := now_s + rate.wait_s(now_s)) < end_s:
        rate.sent(now_s)
        count += 1
    return count


def test_no_more_than_the_rate_is_sent() -> None:
    assert sent_within(Rate(200), 0.0, 10.0) in range(2000, 2002)


def test_a_pause_is_not_made_up_for() -> None:
    rate = Rate(100)
    sent_within(rate, 0.0, 1.0)

    assert sent_within(rate, 60.0, 61.0) in range(100, 112)


def test_no_limit_never_waits() -> None:
    rate = Rate(0)
    rate.sent(1.0)

    assert rate.wait_s(1.0) == 0
