"""The settings of a broker: limits, defaults and the names it announces."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.core import limits
from leveret.core.sizes import SizeLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings that the broker reads; ``server/config/config.py`` adds those of the process, and checks all.

    Attributes:
        handshake_s: the time from accept to connection.open.
        frame_max: offered frame size in bytes, overhead included; 0: no limit.
        channel_max: offered number of channels per connection; 0: no limit (65535).
        heartbeat_s: offered heartbeat, the client's value wins; 0: none.
        message_bytes_max: the largest body accepted.
        consumer_timeout_ms: how long a delivery may stay unacknowledged; None: no limit.
        connections_max: open connections of the node; None: no limit.
        connection_channels_max: open channels per connection, also where more were negotiated; None: as
            negotiated.
        default_user: created in an empty data directory, with all permissions on ``default_vhost``.
        default_pass: its password.
        default_user_tags: its tags.
        default_permissions: its configure, write and read patterns.
        default_vhost: created in an empty data directory.
        loopback_users: users that may log in only from this machine.
        memory_high_watermark: publishers are blocked while more memory is in use.
        memory_paging_ratio: the share of the high watermark at which queues start to page messages out.
        memory_total_bytes: the RAM that shares refer to; None: the machine's.
        disk_free_limit: publishers are blocked while less disk space is free in the data directory.
        product: the broker's name in server-properties. kombu switches its prefetch semantics on
            exactly ``RabbitMQ`` and a version of at least 3.3.
        product_version: the version of ``product``.
        cluster_name: in server-properties; ``Broker`` replaces None by ``leveret@<node id>``.
    """

    handshake_s: float = limits.HANDSHAKE_S
    frame_max: int = limits.FRAME_MAX_BYTES
    channel_max: int = limits.CHANNEL_MAX
    heartbeat_s: int = limits.HEARTBEAT_S
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    consumer_timeout_ms: int | None = limits.CONSUMER_TIMEOUT_MS
    connections_max: int | None = None
    connection_channels_max: int | None = None
    default_user: str = "guest"
    default_pass: str = "guest"  # as in RabbitMQ; guest can log in only from this machine
    default_user_tags: tuple[str, ...] = ("administrator",)
    default_permissions: tuple[str, str, str] = (".*", ".*", ".*")
    default_vhost: str = "/"
    loopback_users: tuple[str, ...] = ("guest",)
    memory_high_watermark: SizeLimit = limits.MEMORY_HIGH_WATERMARK
    memory_paging_ratio: float = limits.MEMORY_PAGING_RATIO
    memory_total_bytes: int | None = None
    disk_free_limit: SizeLimit = limits.DISK_FREE_LIMIT
    product: str = "RabbitMQ"
    product_version: str = "3.10.8"
    cluster_name: str | None = None
