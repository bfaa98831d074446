"""Sends to many sockets, in pure Python; the contract is in ``leveret/amqp/kernel.py``."""

from __future__ import annotations

import os


def send(descriptors: list[int], outputs: list[bytes]) -> list[tuple[int, int]]:
    """Send ``outputs[n]`` to the socket ``descriptors[n]``; return the outputs that were not sent whole."""
    left = []
    for place, (descriptor, output) in enumerate(zip(descriptors, outputs, strict=True)):
        try:
            sent_bytes = os.write(descriptor, output)
        except OSError:  # it is full, or broken: its transport will find that
            sent_bytes = 0
        if sent_bytes != len(output):
            left.append((place, sent_bytes))
    return left
