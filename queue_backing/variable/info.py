"""Statistics of a variable queue for status and list_queues, by RabbitMQ's names.

``memory`` is an estimate from existing counters: bodies in RAM, and for each message what CPython
takes for its tuples and their bytes (measured with ``tracemalloc``, 64-bit, heads of 35 bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import decode_properties
from leveret.core.entry import MESSAGE
from leveret.core.message import HEAD
from leveret.queue_backing.variable.ram_target import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.queue_backing.variable.queue import VariableQueue

PAIR_BYTES: Final = 3_000  # the two actors of a queue and its empty parts
MESSAGE_BYTES: Final = 170  # a message beside its body
ENTRY_BYTES: Final = 160  # its place in the queue

_FLAGS_AT: Final = 13  # the second octet of the property flags, in a content header
_HAS_TIMESTAMP: Final = 0x40


def info(queue: VariableQueue) -> dict[str, Any]:
    """Return figures by RabbitMQ's names; a queue that cannot page has no statistics of its parts."""
    pending, paged = queue.pending, queue.paged
    unacked = pending.count()
    ram_count, ram_bytes = queue.ram_count, queue.ram_bytes
    persistent_count, persistent_bytes = queue.persistent()
    in_ram = ram_count + len(pending.in_ram)
    heads: Iterable[Entry] = queue.q4 or (
        queue.columns.entries() if queue.columns.messages else paged.q3
    )
    entries = in_ram - queue.len_q4() + len(queue.q4)
    stats = {
        "messages_ready": queue.count,
        "messages_unacknowledged": unacked,
        "messages": queue.count + unacked,
        "messages_ready_ram": ram_count,
        "messages_unacknowledged_ram": len(pending.in_ram),
        "messages_ram": in_ram,
        "messages_persistent": persistent_count,
        "messages_paged_out": queue.count - ram_count,
        "message_bytes_ready": queue.ready_bytes,
        "message_bytes_unacknowledged": pending.size_bytes,
        "message_bytes": queue.ready_bytes + pending.size_bytes,
        "message_bytes_ram": ram_bytes,
        "message_bytes_persistent": persistent_bytes,
        "disk_reads": paged.reads,
        "disk_writes": paged.writes,
        "memory": memory_bytes(
            ram_bytes,
            in_ram,
            entries + len(pending.on_disk) + len(paged.q2) + len(paged.q3),
        ),
        "head_message_timestamp": head_timestamp(
            [next(iter(part), None) for part in (heads, pending.in_ram.values())]
        ),
        "next_seq_id": queue.next_seq,
        "next_deliver_seq_id": queue.next_deliver,
        "mode": "lazy" if queue.to_lazy else queue.mode,
    }
    has_parts = queue.can_page or not queue.uses_columns  # or it is a priority of a queue in RAM
    return stats | _parts(queue) if has_parts else stats


def _parts(queue: VariableQueue) -> dict[str, Any]:
    paged, ram = queue.paged, queue.ram
    delta, rates = paged.delta, ram.rates
    return {
        "q1": len(queue.q1),
        "q2": len(paged.q2),
        "delta": (delta.start, delta.length, delta.transient, delta.end),
        "delta_messages": delta.length,
        "q3": len(paged.q3),
        "q4": queue.len_q4(),
        "target_ram_count": "infinity" if ram.target == INFINITE else int(ram.target),
        "avg_ingress_rate": rates.incoming,
        "avg_egress_rate": rates.outgoing,
        "avg_ack_ingress_rate": rates.ack_in,
        "avg_ack_egress_rate": rates.ack_out,
    }


def memory_bytes(body_bytes: int, messages: int, entries: int) -> int:
    """Return about how much RAM a queue takes for bodies, contents, and entries with content or without."""
    return PAIR_BYTES + body_bytes + messages * MESSAGE_BYTES + entries * ENTRY_BYTES


def head_timestamp(heads: Iterable[Entry | None]) -> int | None:
    """Return the least ``timestamp`` of the entries; without content or timestamp an entry has none."""
    messages = [head[MESSAGE] for head in heads if head is not None]
    stamps = [timestamp_of(message) for message in messages if message is not None]
    return min((stamp for stamp in stamps if stamp is not None), default=None)


def timestamp_of(message: Message) -> int | None:
    """Return the timestamp property, None when there is none or the head cannot be read."""
    head = message[HEAD]
    if len(head) <= _FLAGS_AT or not head[_FLAGS_AT] & _HAS_TIMESTAMP:
        return None
    try:
        return decode_properties(head).timestamp
    except SyntaxError_:
        return None
