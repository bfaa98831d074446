"""The options of a run; the names in brackets are PerfTest's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leveret.client.target import Target
from leveret.server.perf.verify import BODY_BYTES_MIN


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run.

    Attributes:
        producers: connections that publish (-x), with ``producer_channels`` channels each (-X).
        consumers: connections that consume (-y), with ``consumer_channels`` channels each (-Y).
        prefetch: per consumer (-q); 0 is no limit. ``channel_prefetch`` is per channel (-Q).
        body_bytes: at least 16, which verification needs (-s).
        queues: names (-u, or -qp with -qpf and -qpt); empty: one server-named queue per consumer.
        pattern: whether the names come from a pattern: then producers take them in turn.
        exchange: (-e); ``kind`` its type (-t). The default exchange is not declared.
        routing_key: (-k); with a pattern, and with the default exchange, the queue's name.
        bindings: topic bindings spread over the queues; with it producers cycle through ``keys``.
        confirm: unconfirmed publishes allowed (-c); 0 is without confirms.
        rate: messages per second and publishing channel (-r); 0 is no limit. ``consumer_rate``: -R.
        producer_messages: per publishing channel (-C); ``consumer_messages`` per consumer (-D).
        time_s: (-z); 0 is no limit.
        ack_every: acknowledge every so many messages with multiple (-A); 1 is each by itself.
        vary: a different message-id and size per message, so that a cache of headers never hits.
        consume_after: consumers begin when all is published; only they are measured.
    """

    target: Target
    id: str = "test"
    producers: int = 1
    consumers: int = 1
    producer_channels: int = 1
    consumer_channels: int = 1
    prefetch: int = 0
    channel_prefetch: int = 0
    body_bytes: int = BODY_BYTES_MIN
    queues: tuple[str, ...] = ()
    pattern: bool = False
    queue_arguments: dict[str, Any] = field(default_factory=dict)
    auto_delete: bool = True
    predeclared: bool = False
    exchange: str = "direct"
    kind: str = "direct"
    routing_key: str = ""
    bindings: int = 0
    keys: int = 0
    confirm: int = 0
    confirm_timeout_s: float = 30.0
    rate: float = 0.0
    consumer_rate: float = 0.0
    autoack: bool = False
    ack_every: int = 1
    persistent: bool = False
    mandatory: bool = False
    producer_messages: int = 0
    consumer_messages: int = 0
    time_s: float = 0.0
    interval_s: float = 1.0
    stall_s: float = 10.0
    heartbeat_s: int = 0
    frame_max: int = 0
    vary: bool = False
    consume_after: bool = False
    json_file: str | None = None
    pids: tuple[int, ...] = ()

    @property
    def all_consumers(self) -> int:
        return self.consumers * self.consumer_channels

    @property
    def all_producers(self) -> int:
        return self.producers * self.producer_channels
