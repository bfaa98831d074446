"""Figures of a variable queue for status and list_queues, by RabbitMQ's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.queue_backing.figures import head_timestamp, memory_bytes
from leveret.queue_backing.variable.ram_target import INFINITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.queue_backing.status import Entry
    from leveret.queue_backing.variable.queue import VariableQueue


def info(queue: VariableQueue) -> dict[str, Any]:
    """Return figures by RabbitMQ's names; a queue that cannot page has no figures of its parts."""
    pending, backlog = queue.pending, queue.backlog
    unacked = pending.count()
    ram_count = queue.ram_count if queue.can_page else queue.count
    in_ram = ram_count + len(pending.in_ram)
    heads: Iterable[Entry] = queue.q4 or (
        queue.columns.entries() if queue.columns.messages else backlog.q3
    )
    ram_bytes = queue.ram_bytes if queue.can_page else queue.ready_bytes + pending.size_bytes
    entries = in_ram - queue.len_q4() + len(queue.q4)
    figures = {
        "messages_ready": queue.count,
        "messages_unacknowledged": unacked,
        "messages": queue.count + unacked,
        "messages_ready_ram": ram_count,
        "messages_unacknowledged_ram": len(pending.in_ram),
        "messages_ram": in_ram,
        "messages_persistent": queue.persistent_count,
        "messages_paged_out": queue.count - ram_count,
        "message_bytes_ready": queue.ready_bytes,
        "message_bytes_unacknowledged": pending.size_bytes,
        "message_bytes": queue.ready_bytes + pending.size_bytes,
        "message_bytes_ram": ram_bytes,
        "message_bytes_persistent": queue.persistent_bytes,
        "disk_reads": backlog.reads,
        "disk_writes": queue.writes,
        "memory": memory_bytes(
            ram_bytes,
            in_ram,
            entries + len(pending.on_disk) + len(backlog.q2) + len(backlog.q3),
        ),
        "head_message_timestamp": head_timestamp(
            [next(iter(part), None) for part in (heads, pending.in_ram.values())]
        ),
        "next_seq_id": queue.next_seq,
        "next_deliver_seq_id": queue.next_deliver,
        "mode": "lazy" if queue.to_lazy else queue.mode,
    }
    has_parts = queue.can_page or not queue.uses_columns  # or it is a priority of a queue in RAM
    return figures | _parts(queue) if has_parts else figures


def _parts(queue: VariableQueue) -> dict[str, Any]:
    backlog, ram = queue.backlog, queue.ram
    delta, rates = backlog.delta, ram.rates
    return {
        "q1": len(queue.q1),
        "q2": len(backlog.q2),
        "delta": (delta.start, delta.length, delta.transient, delta.end),
        "delta_messages": delta.length,
        "q3": len(backlog.q3),
        "q4": queue.len_q4(),
        "target_ram_count": "infinity" if ram.target == INFINITE else ram.target,
        "avg_ingress_rate": rates.incoming,
        "avg_egress_rate": rates.outgoing,
        "avg_ack_ingress_rate": rates.ack_in,
        "avg_ack_egress_rate": rates.ack_out,
    }
