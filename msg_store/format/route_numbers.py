"""What a queue is called in records: its number in the store, and whether its rows lie under several.

A queue with priorities keeps the rows of each under a number of its own, its own number plus the
priority. Messages are routed to the queue, and a batch has one route whatever the priorities in it, so
a record can only name the queue. For a rebuild to know where the row was, it says the highest priority as
well: ``queue_no | highest << 32``, the **route number**. Without priorities that is the queue's number.
"""

from __future__ import annotations

from typing import Final

from leveret.amqp.properties import examine

_SHIFT: Final = 32
_QUEUE_NO: Final = (1 << _SHIFT) - 1


def route_no(queue_no: int, highest: int) -> int:
    """Return what messages for a queue are written for.

    Args:
        queue_no: the queue's number, which its priority 0 has as well.
        highest: the highest priority that it tells from others; 0 without priorities.
    """
    return queue_no | highest << _SHIFT


def row_number(route_no: int, head: bytes) -> int:
    """Return the number that a message's row is under.

    Args:
        route_no: as in the record.
        head: its content header, whose properties were looked at when it was published.
    """
    highest = route_no >> _SHIFT
    if not highest:
        return route_no
    return (route_no & _QUEUE_NO) + min(examine(head).priority or 0, highest)
