"""Restarts counted in a sliding window.

Each restart pushes its time; what is older than the period is dropped; more entries than the
intensity allows is an overrun. A restart exactly one period ago still counts.

Differs from OTP: seconds are floats. OTP counts whole monotonic seconds, so that a gap between
the period and one second more counts or not by the phase of the clock.
"""

from __future__ import annotations


def add_restart(times_s: list[float], now_s: float, intensity: int, period_s: float) -> bool:
    """Count a restart at ``now_s``, in place, and return whether it is still allowed."""
    oldest_s = now_s - period_s
    expired = 0
    while expired < len(times_s) and times_s[expired] < oldest_s:
        expired += 1
    del times_s[:expired]
    times_s.append(now_s)
    return len(times_s) <= intensity
