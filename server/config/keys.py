"""Every key of the two configuration file formats, with its field of ``Config``.

One row per native key: ``leveret.toml`` nests them (``amqp.frame_max`` is ``frame_max`` under
``[amqp]``), ``rabbitmq.conf`` writes them flat under RabbitMQ's names and units. A key of RabbitMQ's
either has the same effect as in RabbitMQ or is refused; keys of ``WITHOUT_EFFECT`` are accepted because they tune
a mechanism that Leveret does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from leveret.core.addresses import Address, parse_address
from leveret.core.log.loggers import LOG_LEVELS
from leveret.core.sizes import SizeLimit, parse_size
from leveret.server.config.config import TLS_LOGIN_NAMES

Converter = Callable[[Any], Any]


class Key(NamedTuple):
    """One setting.

    Attributes:
        native: dotted name in ``leveret.toml``.
        field: field of ``Config``.
        from_toml: converts TOML's value to the field's; raises ValueError.
        rabbitmq: names in ``rabbitmq.conf``, ``$name`` for a variable part; empty: none.
        from_conf: converts the text of ``rabbitmq.conf`` to the field's value; raises ValueError. None
            for names with a variable part, which ``files`` collects.
        unit: of the native value.
    """

    native: str
    field: str
    from_toml: Converter
    rabbitmq: str = ""
    from_conf: Converter | None = None
    unit: str = ""


def text(value: object) -> str:
    """Check a string."""
    if not isinstance(value, str):
        raise ValueError("a string")
    return value


def integer(value: object, allowed: str = "an integer") -> int:
    """Check an integer; a boolean is not an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(allowed)
    return value


def limit(value: object) -> int | None:
    """Convert an integer, or ``"infinity"`` for no limit."""
    return None if value == "infinity" else integer(value, 'an integer or "infinity"')


def number(value: object, allowed: str = "a number") -> float:
    """Check a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(allowed)
    return float(value)


def seconds(value: object) -> float:
    """Check a number of seconds."""
    return number(value, "a number of seconds")


def strings(value: object) -> tuple[str, ...]:
    """Check a list of strings."""
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError("a list of strings")
    return tuple(value)


def one_or_more(value: object) -> tuple[str, ...]:
    """Convert a list of strings, or one string with commas."""
    entries = value.split(",") if isinstance(value, str) else strings(value)
    return tuple(entry.strip() for entry in entries)


def addresses(value: object) -> tuple[Address, ...]:
    """Convert ``HOST:PORT``, or a list of such."""
    entries = [value] if isinstance(value, str) else value
    return tuple(parse_address(entry) for entry in strings(entries))


def switch(value: object) -> bool:
    """Check a boolean."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def path(value: object) -> Path:
    """Convert a path; a relative path starts at the working directory."""
    return Path(text(value)).expanduser()


def patterns(value: object) -> tuple[str, str, str]:
    """Convert the configure, write and read patterns, in this order."""
    entries = strings(value)
    if len(entries) != 3:
        raise ValueError("three patterns: configure, write, read")
    return entries[0], entries[1], entries[2]


def digits(value: str) -> int:
    """Parse digits, RabbitMQ's form of integers."""
    if not (value.isascii() and value.lstrip("-").isdigit()):
        raise ValueError("an integer")
    return int(value)


def conf_limit(value: str) -> int | None:
    """Parse an integer or ``infinity``."""
    return None if value == "infinity" else digits(value)


def conf_timeout(value: str) -> int | None:
    """Parse milliseconds; ``undefined`` or ``false``: none."""
    return None if value in {"undefined", "false", "infinity"} else digits(value)


def conf_milliseconds(value: str) -> float:
    """Parse milliseconds; return seconds."""
    return digits(value) / 1000


def conf_level(value: str) -> str:
    """Parse a log level; RabbitMQ's four additional levels map to their neighbours."""
    level = {"notice": "info", "warn": "warning", "alert": "critical", "emergency": "critical"}
    found = level.get(value, value)
    if found not in LOG_LEVELS:
        raise ValueError(", ".join(LOG_LEVELS))
    return found


def conf_log_file(value: str) -> Path | None:
    """Parse a path; ``false``: no file."""
    return None if value == "false" else path(value)


def conf_switch(value: str) -> bool:
    """Parse ``true`` or ``false``."""
    if value not in {"true", "false"}:
        raise ValueError("true or false")
    return value == "true"


def conf_verify(value: str) -> bool:
    """Parse ``verify_peer`` or ``verify_none``."""
    if value not in {"verify_peer", "verify_none"}:
        raise ValueError("verify_peer, verify_none")
    return value == "verify_peer"


def conf_login_from(value: str) -> str:
    """Parse which name of a certificate is the user; RabbitMQ has two words for one of them."""
    found = "subject_alternative_name" if value == "subject_alt_name" else value
    if found not in TLS_LOGIN_NAMES:
        raise ValueError(", ".join(TLS_LOGIN_NAMES))
    return found


def size(value: object) -> int:
    """Convert a number of bytes, or a size such as ``512MiB`` or ``2GB``."""
    if isinstance(value, bool) or not isinstance(value, int | str) or str(value).startswith("-"):
        raise ValueError("bytes, or a size such as 512MiB or 2GB")
    return parse_size(str(value))


def size_limit(value: object) -> SizeLimit:
    """Convert a size, or, with a decimal point, a share of the RAM."""
    if isinstance(value, float):
        return SizeLimit(share=value)
    return SizeLimit(size(value))


def conf_share(value: str) -> float:
    """Parse a share or a multiple."""
    try:
        return float(value)
    except ValueError:
        raise ValueError("a number such as 0.4") from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYS: Final = (
    Key("listen", "listen", addresses, "listeners.tcp.$name listeners.ssl.$name"),
    Key("proxy_protocol", "proxy_protocol", switch, "proxy_protocol", conf_switch),
    Key("data_dir", "data_dir", path),
    Key("latency", "latency", text, "latency", text),
    Key("log.level", "log_level", text, "log.console.level log.level", conf_level),
    Key("log.file", "log_file", path, "log.file", conf_log_file),
    Key("log.file_level", "log_file_level", text, "log.file.level", conf_level),
    Key("log.exchange", "log_exchange", switch, "log.exchange", conf_switch),
    Key("log.exchange_level", "log_exchange_level", text, "log.exchange.level", conf_level),
    Key("tls.cert_file", "tls_cert_file", path, "ssl_options.certfile", path),
    Key("tls.key_file", "tls_key_file", path, "ssl_options.keyfile", path),
    Key("tls.key_password", "tls_key_password", text, "ssl_options.password", text),
    Key("tls.ca_file", "tls_ca_file", path, "ssl_options.cacertfile", path),
    Key("tls.verify", "tls_verify", switch, "ssl_options.verify", conf_verify),
    Key(
        "tls.require_certificate",
        "tls_require_certificate",
        switch,
        "ssl_options.fail_if_no_peer_cert",
        conf_switch,
    ),
    Key("tls.depth", "tls_depth", integer, "ssl_options.depth", digits, "certificates"),
    Key("tls.versions", "tls_versions", strings, "ssl_options.versions.$version"),
    Key("tls.ciphers", "tls_ciphers", strings, "ssl_options.ciphers.$cipher"),
    Key(
        "tls.handshake_s",
        "tls_handshake_s",
        seconds,
        "ssl_handshake_timeout",
        conf_milliseconds,
        "s",
    ),
    Key("tls.login_from", "tls_login_from", text, "ssl_cert_login_from", conf_login_from),
    Key("tls.login_san_type", "tls_login_san_type", text, "ssl_cert_login_san_type", text),
    Key("tls.login_san_index", "tls_login_san_index", integer, "ssl_cert_login_san_index", digits),
    Key("amqp.handshake_s", "handshake_s", seconds, "handshake_timeout", conf_milliseconds, "s"),
    Key("amqp.frame_max", "frame_max", integer, "frame_max", digits, "bytes"),
    Key("amqp.channel_max", "channel_max", integer, "channel_max", digits, "channels"),
    Key("amqp.heartbeat_s", "heartbeat_s", integer, "heartbeat", digits, "s"),
    Key(
        "amqp.message_bytes_max", "message_bytes_max", integer, "max_message_size", digits, "bytes"
    ),
    Key(
        "amqp.consumer_timeout_ms",
        "consumer_timeout_ms",
        limit,
        "consumer_timeout",
        conf_timeout,
        "ms",
    ),
    Key(
        "limits.connections", "connections_max", limit, "connection_max", conf_limit, "connections"
    ),
    Key("limits.channels_per_connection", "connection_channels_max", limit, unit="channels"),
    Key("producers.max", "producers_max", integer, unit="producers"),
    Key("producers.expiry_s", "producer_expiry_s", seconds, unit="s"),
    Key(
        "memory.high_watermark",
        "memory_high_watermark",
        size_limit,
        "vm_memory_high_watermark.relative vm_memory_high_watermark.absolute",
    ),
    Key(
        "memory.paging_ratio",
        "memory_paging_ratio",
        number,
        "vm_memory_high_watermark_paging_ratio",
        conf_share,
    ),
    Key(
        "memory.total",
        "memory_total_bytes",
        size,
        "total_memory_available_override_value",
        size,
        "bytes",
    ),
    Key(
        "disk.free_limit",
        "disk_free_limit",
        size_limit,
        "disk_free_limit.relative disk_free_limit.absolute",
    ),
    Key("defaults.user", "default_user", text, "default_user", text),
    Key("defaults.pass", "default_pass", text, "default_pass", text),
    Key("defaults.user_tags", "default_user_tags", strings, "default_user_tags.$tag"),
    Key(
        "defaults.permissions",
        "default_permissions",
        patterns,
        "default_permissions.configure default_permissions.write default_permissions.read",
    ),
    Key("defaults.vhost", "default_vhost", text, "default_vhost", text),
    Key(
        "definitions.file",
        "load_definitions",
        path,
        "load_definitions definitions.local.path",
        path,
    ),
    Key("access.mechanisms", "auth_mechanisms", strings, "auth_mechanisms.$name"),
    Key("definitions.unsupported_queues", "unsupported_queues", text),
    Key("access.loopback_users", "loopback_users", strings, "loopback_users loopback_users.$user"),
    Key("auth.backends", "auth_backends", strings, "auth_backends.$n"),
    Key("auth.cache_s", "auth_cache_s", seconds, "auth_cache.cache_ttl", conf_milliseconds, "s"),
    Key(
        "auth.timeout_s",
        "auth_timeout_s",
        seconds,
        "auth_http.request_timeout",
        conf_milliseconds,
        "s",
    ),
    Key("auth.http.method", "auth_http_method", text, "auth_http.http_method", text),
    Key("auth.http.user_path", "auth_http_user_path", text, "auth_http.user_path", text),
    Key("auth.http.vhost_path", "auth_http_vhost_path", text, "auth_http.vhost_path", text),
    Key(
        "auth.http.resource_path", "auth_http_resource_path", text, "auth_http.resource_path", text
    ),
    Key("auth.http.topic_path", "auth_http_topic_path", text, "auth_http.topic_path", text),
    Key("plugins.interceptors", "interceptors", strings),
    Key("announce.product", "product", text, "product.name", text),
    Key("announce.version", "product_version", text, "product.version", text),
    Key("cluster.name", "cluster", text),
    Key("cluster.etcd", "cluster_etcd", one_or_more),
    Key("cluster.node", "cluster_node", text),
    Key("cluster.listen", "cluster_listen", text),
    Key("cluster.advertise", "cluster_advertise", text),
    Key("cluster.secret_file", "cluster_secret_file", path),
    Key(
        "cluster.partition_handling",
        "cluster_partition_handling",
        text,
        "cluster_partition_handling",
    ),
    Key("cluster.etcd_user", "cluster_etcd_user", text),
    Key("cluster.etcd_password", "cluster_etcd_password", text),
    Key("cluster.etcd_ca_file", "cluster_etcd_ca_file", path),
    Key("cluster.etcd_cert_file", "cluster_etcd_cert_file", path),
    Key("cluster.etcd_key_file", "cluster_etcd_key_file", path),
    Key("cluster.tls_cert_file", "cluster_tls_cert_file", path),
    Key("cluster.tls_key_file", "cluster_tls_key_file", path),
    Key("cluster.tls_key_password", "cluster_tls_key_password", text),
    Key("cluster.tls_ca_file", "cluster_tls_ca_file", path),
    Key(
        "cluster.queue_master_locator",
        "cluster_queue_master_locator",
        text,
        "queue_master_locator",
        text,
    ),
    Key("cluster.valid_s", "cluster_valid_s", integer, unit="s"),
    Key("cluster.lease_s", "cluster_lease_s", integer, unit="s"),
    Key("announce.cluster_name", "cluster_name", text, "cluster_name", text),
)

WITHOUT_EFFECT: Final = {
    "num_acceptors.tcp": "one event loop accepts all connections",
    "num_acceptors.ssl": "one event loop accepts all connections",
    "ssl_options.bypass_pem_cache": "files of certificates are read again when they change",
    "ssl_options.client_renegotiation": "never allowed",
    "ssl_options.honor_cipher_order": "the order of ciphers is always the broker's",
    "ssl_options.honor_ecc_order": "the order of curves is always the broker's",
    "ssl_options.log_alert": "each handshake that fails has a line in the log",
    "ssl_options.log_level": "each handshake that fails has a line in the log",
    "ssl_options.reuse_sessions": "clients may resume sessions of TLS 1.2, and none of TLS 1.3",
    "ssl_options.secure_renegotiate": "never renegotiated",
    "definitions.import_backend": "local_filesystem is the only one",
    "tcp_listen_options.nodelay": "always on",
    "memory_monitor_interval": "memory is measured more often the scarcer it is",
    "vm_memory_calculation_strategy": "always the process's anonymous memory",
}
"""RabbitMQ's keys that are accepted with a warning in the log that they have no effect."""

OF_LATER_VERSIONS: Final = _words(
    """
    auth_cache auth_http cluster_formation cluster_keepalive_interval
    collect_statistics log.channel log.connection
    log.default log.dir log.exchange.formatter log.federation log.file.formatter log.file.rotation
    log.mirroring log.queue log.syslog log.upgrade management mirroring_sync_batch_size mqtt
    msg_store_file_size_limit prometheus queue_index_embed_msgs_below
    queue_leader_locator reverse_dns_lookups ssl_options statistics stomp
    tcp_listen_options web_
    """
)
"""Prefixes of RabbitMQ's keys that Leveret does not have: refused, but not as misspelt."""
