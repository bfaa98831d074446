"""Messages with properties of many kinds."""

from __future__ import annotations

import random

from leveret.amqp.properties import Properties, head_of
from leveret.core.message import Message, origin_of


def messages(rng: random.Random, count: int) -> list[Message]:
    """Return messages with bodies of some sizes, with and without headers, deaths and other properties."""
    made = []
    for number in range(count):
        body = rng.randbytes(rng.choice([0, 1, 10, 300, 3_000]))
        table = {
            "s": ("S", b"text"),
            "n": ("I", number),
            "a": ("A", [("t", True), ("D", (2, 314))]),
        }
        death = ("A", [("F", {"count": ("l", 1), "queue": ("S", b"q"), "time": ("T", 5)})])
        properties = Properties(
            content_type="text/plain" if number % 3 else None,
            headers=[None, {}, table, table | {"x-death": death}][number % 4],
            delivery_mode=2,
            priority=number % 256,
            timestamp=1_700_000_000 + number if number % 2 else None,
            message_id=f"m{number}" if rng.random() < 0.5 else None,
        )
        made.append((origin_of(b"x", b"key.%d" % number), head_of(properties, len(body)), body))
    return made
