"""What clients know of the messages of some queues, and what must be true after a crash.

A message has a *name*, its body follows from it: ``PUBLISHER.NUMBER.PRIORITY`` and a letter for its kind: ``t``
is transient, ``l`` large, ``x`` expires. A publisher counts up, so names say in which order they must stand.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

SIZES = (0, 0, 30, 300, 300, 2_000, 9_000)  # of what follows the name
LARGE_SIZES = (65_536, 131_072, 400_000, 1 << 20, 4 << 20)
KINDS = "tlx"


def body_of(name: str) -> bytes:
    """Return the body of the message with this name."""
    head = name.encode() + b" "
    sizes = LARGE_SIZES if name.endswith("l") else SIZES
    size = sizes[zlib.crc32(head) % len(sizes)]
    return head + (head * (size // len(head) + 1))[:size]


def name_of(body: bytes) -> str:
    """Return the name of a message; fails if the body is not its own."""
    name = body.split(b" ", 1)[0].decode()
    assert body == body_of(name), f"the body of {name} is not its own"
    return name


def is_transient(name: str) -> bool:
    return name.endswith("t")


def place_of(name: str) -> tuple[str, int, int]:
    """Return publisher, priority and number."""
    publisher, number, priority = name.rstrip(KINDS).split(".")
    return publisher, int(priority), int(number)


@dataclass(slots=True)
class Known:
    """The known history of one queue. Names are added before they are published.

    Attributes:
        has_priorities: it hands out the highest priority first.
        published: what may be in it.
        confirmed: messages that the broker must keep.
        acked: what clients have acknowledged; the broker may not have heard of it.
        gone: durably acknowledged messages; they must not come back.
    """

    has_priorities: bool = False
    published: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def check(self, found: list[tuple[str, bool]], has_crashed: bool) -> None:
        """Compare with the contents of the queue at the start of the broker, in order.

        Args:
            found: name, and whether the broker says that it may have been delivered before.
            has_crashed: it was not stopped in order, so it cannot know.
        """
        names = [name for name, _ in found]
        there = set(names)
        owed = self.confirmed - self.acked
        assert len(names) == len(there), "a message is there twice"
        assert owed <= there, f"{len(owed - there)} confirmed are lost: {sorted(owed - there)[:5]}"
        assert there <= self.published, sorted(there - self.published)[:5]
        assert not there & self.gone, f"acked and back: {sorted(there & self.gone)[:5]}"
        assert not [name for name in names if is_transient(name)], "a transient came back"
        assert_ordered(names, self.has_priorities)
        if has_crashed:
            assert all(again for _, again in found), "the broker cannot know that this is new"
        # From here on: messages in the queue are durable, all others were never published.
        self.published, self.confirmed = there, set(there)
        self.acked.clear()
        self.gone.clear()


def assert_ordered(names: list[str], has_priorities: bool) -> None:
    """The messages of a publisher as they were published; the highest priorities first, if any."""
    places = [place_of(name) for name in names]
    if has_priorities:
        priorities = [priority for _, priority, _ in places]
        assert priorities == sorted(priorities, reverse=True), "not by priority"
    last: dict[tuple[str, int], int] = {}
    for publisher, priority, number in places:
        level = publisher, priority if has_priorities else 0
        before = last.get(level, -1)
        assert before < number, f"{publisher}.{number} stands behind {before}"
        last[level] = number
