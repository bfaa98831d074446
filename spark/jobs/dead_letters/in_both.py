"""Letters that the queue in which they died may still have as well.

A message stays in its queue until all queues that its letter went to have the letter (docs/dead-letters.md), so a
snapshot of that moment, or one after a crash, has both. They are two messages of the store, and nothing in them names
the other. But a letter has the body, the properties but for ``expiration``, and the earlier deaths of the message that
died, and says in which queue. Messages that are equal in all of that are told apart by nobody, so of *n* such letters
and *m* such messages in their queue ``min(n, m)`` **may** be in both, and all others are not.

Each message costs 8 bytes, a dead letter 16.
"""

from __future__ import annotations

import base64
from array import array
from hashlib import blake2b
from typing import Any

import numpy as np


class InBoth:
    """Counts letters that may be in both queues; parts of a job are counted apart and merged."""

    def __init__(self) -> None:
        self._held = array("Q")  # what each message is in its queue
        self._died = array("Q")  # what each letter was in the queue it died in

    def add(self, row: dict[str, Any]) -> None:
        """Add a message, with ``vhost``, ``queue``, ``x_death``, ``properties`` and ``body``."""
        deaths = row["x_death"] or []
        self._held.append(_identity(row, row["queue"], deaths))
        if deaths:
            self._died.append(_identity(row, deaths[0]["queue"], deaths[1:]))

    def count(self) -> int:
        """Return how many letters may be in both."""
        held, held_counts = np.unique(np.frombuffer(self._held, np.uint64), return_counts=True)
        died, died_counts = np.unique(np.frombuffer(self._died, np.uint64), return_counts=True)
        _, in_held, in_died = np.intersect1d(held, died, assume_unique=True, return_indices=True)
        return int(np.minimum(held_counts[in_held], died_counts[in_died]).sum())

    def pack(self) -> list[str]:
        """Return all of it as texts."""
        return [base64.b64encode(each.tobytes()).decode() for each in (self._held, self._died)]

    def merge(self, packed: list[str]) -> None:
        """Add what another part has packed."""
        for mine, text in zip((self._held, self._died), packed, strict=True):
            mine.frombytes(base64.b64decode(text))


def _identity(row: dict[str, Any], queue: str | None, deaths: list[dict[str, Any]]) -> int:
    """Return what does not change when a message dies in a queue; ``deaths`` are those before."""
    others = sorted(repr(death) for death in deaths if death["queue"] != queue)
    properties = (row["properties"] or {}) | {"expiration": None}
    text = repr((row["vhost"], queue, others, sorted(properties.items())))
    digest = blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8)
    digest.update(row["body"])
    return int.from_bytes(digest.digest(), "big")
