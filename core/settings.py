"""The settings of a broker: limits, defaults and the names it announces."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from leveret.core import limits
from leveret.core.batching import BALANCED_NAME, POLICIES, Batching
from leveret.core.sizes import SizeLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings that the broker reads; ``server/config/config.py`` adds those of the process, and checks all.

    Attributes:
        latency: whether a few messages wait for others, one of ``leveret.core.batching.POLICIES``.
        handshake_s: the time from accept to connection.open.
        frame_max: offered frame size in bytes, overhead included; 0: no limit.
        channel_max: offered number of channels per connection; 0: no limit (65535).
        heartbeat_s: offered heartbeat, the client's value wins; 0: none.
        message_bytes_max: the largest body accepted.
        consumer_timeout_ms: how long a delivery may stay unacknowledged; None: no limit.
        connections_max: open connections of the node; None: no limit.
        connection_channels_max: open channels per connection, also where more were negotiated; None: as
            negotiated.
        producers_max: producers that number their messages, known to a queue; the least recently used are forgotten.
        producer_expiry_s: after so long without use a queue forgets a producer.
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
        log_exchange: ``leveret serve`` publishes its log to the exchange ``amq.rabbitmq.log`` of ``default_vhost``.
        product: the broker's name in server-properties. kombu switches its prefetch semantics on
            exactly ``RabbitMQ`` and a version of at least 3.3.
        product_version: the version of ``product``.
        cluster_name: in server-properties; ``Broker`` replaces None by ``leveret@<node id>``.
        auth_mechanisms: the SASL mechanisms that are offered; EXTERNAL on TLS listeners only.
        tls_cert_file: certificate of the TLS listeners, PEM, with its chain.
        tls_key_file: its key; None: in the certificate's file.
        tls_key_password: of an encrypted key.
        tls_ca_file: the authorities whose clients are trusted.
        tls_verify: clients are asked for a certificate; one that is not trusted is refused.
        tls_require_certificate: clients without one are refused.
        tls_depth: intermediate certificates allowed between a client's and its authority; None: any number.
        tls_versions: ``tlsv1.2``, ``tlsv1.3``.
        tls_ciphers: OpenSSL's names; empty: Python's choice.
        tls_handshake_s: the time from accept to the end of the TLS handshake.
        tls_login_from: which name of a client's certificate is the user of EXTERNAL.
        tls_login_san_type: which subject alternative names count.
        tls_login_san_index: which of them, from 0.
    """

    latency: str = BALANCED_NAME
    handshake_s: float = limits.HANDSHAKE_S
    frame_max: int = limits.FRAME_MAX_BYTES
    channel_max: int = limits.CHANNEL_MAX
    heartbeat_s: int = limits.HEARTBEAT_S
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    consumer_timeout_ms: int | None = limits.CONSUMER_TIMEOUT_MS
    connections_max: int | None = None
    connection_channels_max: int | None = None
    producers_max: int = limits.PRODUCERS_MAX
    producer_expiry_s: float = limits.PRODUCER_EXPIRY_S
    default_user: str = "guest"
    default_pass: str = field(
        default="guest", repr=False
    )  # as in RabbitMQ; guest can log in only from this machine
    default_user_tags: tuple[str, ...] = ("administrator",)
    default_permissions: tuple[str, str, str] = (".*", ".*", ".*")
    default_vhost: str = "/"
    loopback_users: tuple[str, ...] = ("guest",)
    memory_high_watermark: SizeLimit = limits.MEMORY_HIGH_WATERMARK
    memory_paging_ratio: float = limits.MEMORY_PAGING_RATIO
    memory_total_bytes: int | None = None
    disk_free_limit: SizeLimit = limits.DISK_FREE_LIMIT
    log_exchange: bool = False
    product: str = "RabbitMQ"
    product_version: str = "3.10.8"
    cluster_name: str | None = None
    auth_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_ca_file: Path | None = None
    tls_verify: bool = False
    tls_require_certificate: bool = False
    tls_depth: int | None = None
    tls_versions: tuple[str, ...] = ("tlsv1.2", "tlsv1.3")
    tls_ciphers: tuple[str, ...] = ()
    tls_handshake_s: float = limits.TLS_HANDSHAKE_S
    tls_login_from: str = "distinguished_name"
    tls_login_san_type: str = "dns"
    tls_login_san_index: int = 0

    @property
    def batching(self) -> Batching:
        """The policy that ``latency`` names."""
        return POLICIES[self.latency]
