"""Seconds in the arguments of commands."""

from __future__ import annotations

import argparse
import math


def seconds(text: str) -> float:
    """Return the seconds that an option gives, a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value
