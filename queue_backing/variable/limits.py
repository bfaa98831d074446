"""Limits: the constants of a variable queue, in one place so that tests can make them small."""

from __future__ import annotations

from typing import Final, NamedTuple


class Limits(NamedTuple):
    """Constants of a variable queue.

    Attributes:
        segment: seqs of an index segment; Q3 keeps its entries of its head's segment.
        io_batch: betas that must be too many before any is pushed to delta.
        step: transitions of each kind in one turn. RabbitMQ makes 8,000, twice its store credit; here
            they are fewer so that a turn, with the store's part of it, stays below 5 ms.
        read_max: seqs of delta that are loaded at once.
        slack: messages, or a 16th of the target if that is more, by which the target may be passed
            before a publish checks it.
        windows: windows of delta that are looked through in one turn.
        read_ahead: contents that are asked for before they are fetched.
        read_ahead_bytes: the size of their bodies; a single message may have more.
    """

    segment: int = 2048
    io_batch: int = 4096
    step: int = 1000
    read_max: int = 2048
    slack: int = 64
    windows: int = 8
    read_ahead: int = 2048
    read_ahead_bytes: int = 2 * 1024 * 1024


DEFAULT_LIMITS: Final = Limits()
