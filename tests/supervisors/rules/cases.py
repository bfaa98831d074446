"""All cases, in the order of the table's parts."""

from __future__ import annotations

from supervisors.rules import climbing, ending, intensity, requesting, restarting, starting
from supervisors.rules.notation import Case

CASES: list[Case] = [
    *starting.CASES,
    *restarting.CASES,
    *intensity.CASES,
    *ending.CASES,
    *requesting.CASES,
    *climbing.CASES,
]
