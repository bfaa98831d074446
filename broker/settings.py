"""The broker's part of the configuration: limits, defaults and the names it announces."""

from __future__ import annotations

from msgspec import Struct, field

from leveret.core import limits
from leveret.core.limits import DISK_FREE_LIMIT, MEMORY_HIGH_WATERMARK
from leveret.core.sizes import SizeLimit
from leveret.queue_backing.memory_monitor import PAGING_RATIO


class BrokerSettings(Struct, frozen=True):
    """The broker's part of the configuration.

    Attributes:
        handshake_s: from the accepted socket to connection.open.
        frame_max_bytes: offered in connection.tune; 0 is no limit.
        channel_max: offered in connection.tune; 0 is no limit.
        heartbeat_s: offered in connection.tune; the client's value wins.
        message_bytes_max: larger bodies are refused with 406.
        consumer_timeout_ms: an older unacked delivery closes its channel.
        connections_max: further sockets are closed at once; 0 is no limit.
        connection_channels_max: open channels per connection, whatever was negotiated; 0 is no limit.
        memory_high_watermark: of memory in use, above which publishers are blocked.
        memory_paging_ratio: share of that, from which on queues page messages out.
        memory_total_bytes: the RAM there is for the broker; 0: ask the system.
        disk_free_limit: of free space in the data directory, below which publishers are blocked.
        product, product_version, cluster_name: of server-properties; kombu looks for RabbitMQ there.
        default_user, default_password, default_vhost: made when the metadata is empty.
        default_permissions: the user's configure, write and read patterns on the default vhost.
        loopback_users: may log in from loopback addresses only.
    """

    handshake_s: float = limits.HANDSHAKE_S
    frame_max_bytes: int = limits.FRAME_MAX_BYTES
    channel_max: int = limits.CHANNEL_MAX
    heartbeat_s: int = limits.HEARTBEAT_S
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    consumer_timeout_ms: int = limits.CONSUMER_TIMEOUT_MS
    connections_max: int = 0
    connection_channels_max: int = 0
    memory_high_watermark: SizeLimit = MEMORY_HIGH_WATERMARK
    memory_paging_ratio: float = PAGING_RATIO
    memory_total_bytes: int = 0
    disk_free_limit: SizeLimit = DISK_FREE_LIMIT
    product: str = "RabbitMQ"
    product_version: str = "3.10.8"
    cluster_name: str = "leveret@localhost"
    default_user: str = "guest"
    default_password: str = "guest"
    default_vhost: str = "/"
    default_user_tags: tuple[str, ...] = ("administrator",)
    default_permissions: tuple[str, str, str] = (".*", ".*", ".*")
    loopback_users: frozenset[str] = field(default_factory=lambda: frozenset({"guest"}))
