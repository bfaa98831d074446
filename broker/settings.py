"""What a broker is told: limits, defaults and what it calls itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.core import limits


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker's part of the configuration.

    Attributes:
        handshake_s: from the accepted socket to connection.open.
        frame_max_bytes: offered in connection.tune; 0 is no limit.
        channel_max: offered in connection.tune; 0 is no limit.
        heartbeat_s: offered in connection.tune; the client's value wins.
        message_bytes_max: larger bodies are refused with 406.
        consumer_timeout_ms: an unacked delivery older than that closes its channel.
        connections_max: further sockets are closed at once; 0 is no limit.
        connection_channels_max: open channels per connection, whatever was negotiated; 0 is no limit.
        product: announced in server-properties (SETTLED 14: kombu looks for RabbitMQ).
        product_version: announced in server-properties.
        cluster_name: announced in server-properties.
        default_user, default_password, default_vhost: made when the metadata is empty.
        default_user_tags: tags of that user.
        default_permissions: its configure, write and read patterns on the default vhost.
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
    product: str = "RabbitMQ"
    product_version: str = "3.10.8"
    cluster_name: str = "leveret@localhost"
    default_user: str = "guest"
    default_password: str = "guest"
    default_vhost: str = "/"
    default_user_tags: tuple[str, ...] = ("administrator",)
    default_permissions: tuple[str, str, str] = (".*", ".*", ".*")
    loopback_users: frozenset[str] = field(default_factory=lambda: frozenset({"guest"}))
