"""Every key of the two configuration file formats, with its field of ``Config``.

One row per native key: ``leveret.toml`` nests them (``amqp.frame_max`` is ``frame_max`` under
``[amqp]``), ``rabbitmq.conf`` writes them flat under RabbitMQ's names and units. A key of RabbitMQ's
has the same effect as in RabbitMQ; or it is safe to ignore (``WITHOUT_EFFECT``), and a warning says that it has no
effect; or it is refused (``LACKING``).
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
        "load_definitions definitions.local.path management.load_definitions",
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
        text,
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

_ERLANG: Final = "it tunes the Erlang machine"
_LEASES: Final = "a node is down when its lease in etcd ends (cluster.lease_s)"
_NO_MIRRORS: Final = "queues have no mirrors"
_ONE_LEVEL: Final = (
    "log.console.level, log.file.level and log.exchange.level are for lines of all categories"
)
_ONE_FORM: Final = "a line has one form"
_SAME_TWICE: Final = "a file that is imported again changes nothing"

WITHOUT_EFFECT: Final = {
    "num_acceptors.*": "one event loop accepts all connections",
    "ssl_options.bypass_pem_cache": "files of certificates are read again when they change",
    "ssl_options.client_renegotiation": "never allowed",
    "ssl_options.dhfile": "keys are agreed on with elliptic curves (ECDHE)",
    "ssl_options.honor_cipher_order": "the order of ciphers is always the broker's",
    "ssl_options.honor_ecc_order": "the order of curves is always the broker's",
    "ssl_options.log_alert": "each handshake that fails has a line in the log",
    "ssl_options.log_level": "each handshake that fails has a line in the log",
    "ssl_options.reuse_sessions": "clients may resume sessions of TLS 1.2, and none of TLS 1.3",
    "ssl_options.secure_renegotiate": "never renegotiated",
    "ssl_allow_poodle_attack": "TLS before 1.2 does not exist here",
    "tcp_listen_options.nodelay": "always on",
    "tcp_listen_options.*": "sockets have the system's settings; heartbeats find clients that are gone",
    "initial_frame_max": "a frame of a login has at most 4,096 bytes",
    "reverse_dns_lookups": "clients are shown with their addresses",
    "definitions.import_backend": "local_filesystem is the only one",
    "definitions.skip_if_unchanged": _SAME_TWICE,
    "definitions.hashing.algorithm": _SAME_TWICE,
    "password_hashing_module": "new passwords are hashed with salted SHA-256",
    "auth_cache.cached_backend.*": "answers of all back ends but internal are kept",
    "auth_cache.cache_module": "answers are kept in memory",
    "auth_cache.cache_refusals": "refusals are kept as long as other answers",
    "auth_http.connection_timeout": "auth_http.request_timeout is for all of a request",
    "auth_ldap.*": "there is no back end for LDAP",
    "auth_oauth2.*": "there is no back end for OAuth 2",
    "trust_store.*": "ssl_options.cacertfile has the authorities that are trusted",
    "memory_monitor_interval": "memory is measured more often the scarcer it is",
    "vm_memory_calculation_strategy": "always the process's anonymous memory",
    "classic_queue.default_version": "all queues are stored in the same way",
    "queue_index_embed_msgs_below": "the store chooses by its size where a message is stored",
    "msg_store_file_size_limit": "the size of a segment is fixed",
    "message_store_shutdown_timeout": "a start finishes what a stop has left",
    "quorum_queue.compute_checksums": "each stored message has a checksum",
    "raft.*": "a quorum queue has one replica and no Raft",
    "mirroring_sync_batch_size": _NO_MIRRORS,
    "mirroring_sync_max_throughput": _NO_MIRRORS,
    "vhost_restart_strategy": "a vhost that is down is started again until it serves; the others serve meanwhile",
    "collect_statistics": "figures are counted when they are asked for",
    "collect_statistics_interval": "figures are counted when they are asked for",
    "cluster_formation.*": "nodes find each other in etcd; a node without a cluster's name is alone",
    "cluster_partition_handling.pause_if_all_down.*": "Leveret always does pause_minority, by the nodes of etcd",
    "cluster_keepalive_interval": _LEASES,
    "net_ticktime": _LEASES,
    "distribution.*": "nodes are linked at the address of cluster.listen",
    "mnesia_table_loading_retry_limit": "there is no Mnesia",
    "mnesia_table_loading_retry_timeout": "there is no Mnesia",
    "queue_leader_locator": "queue_master_locator is for queues of all types",
    "background_gc_enabled": _ERLANG,
    "background_gc_target_interval": _ERLANG,
    "default_worker_pool_size": _ERLANG,
    "delegate_count": _ERLANG,
    "erlang.*": _ERLANG,
    "hipe_compile": _ERLANG,
    "socket_writer.gc_threshold": _ERLANG,
    "sysmon_handler.*": _ERLANG,
    "motd_file": "a start shows no greeting",
    "log.console.stdio": "the log goes to stderr",
    "log.console.use_colors": "the log has no colours",
    "log.console.color_esc_seqs.*": "the log has no colours",
    "log.console.formatter.*": _ONE_FORM,
    "log.file.formatter.*": _ONE_FORM,
    "log.file.rotation.*": "logrotate rotates the file: SIGHUP opens it anew",
    "log.exchange.formatter.*": _ONE_FORM,
    "log.syslog.*": "the log goes to stderr, log.file and log.exchange",
    "log.journald.*": "journald takes what a service writes to stderr",
    "log.channel.*": _ONE_LEVEL,
    "log.connection.*": _ONE_LEVEL,
    "log.default.*": _ONE_LEVEL,
    "log.federation.*": _ONE_LEVEL,
    "log.mirroring.*": _ONE_LEVEL,
    "log.queue.*": _ONE_LEVEL,
    "log.ra.*": _ONE_LEVEL,
    "log.upgrade.*": _ONE_LEVEL,
    "management.*": "there is no management plug-in; leveret status and leveret ctl have its figures",
    "management_agent.*": "there is no management plug-in",
    "prometheus.*": "there is no Prometheus plug-in; leveret status --json has its figures",
    "mqtt.*": "there is no MQTT",
    "web_mqtt.*": "there is no MQTT",
    "stomp.*": "there is no STOMP",
    "web_stomp.*": "there is no STOMP",
    "stream.*": "there is no stream protocol",
    "amqp1_0.*": "there is no AMQP 1.0",
    "event_exchange.*": "there is no event exchange",
    "aws.*": "nodes find each other in etcd",
}
"""RabbitMQ's keys that are accepted, and why they have no effect; ``a.*`` is ``a`` and every key below it."""

LACKING: Final = {
    "credential_validator.*": "passwords of new users are not checked",
    "definitions.https.*": "load_definitions names a file",
    "definitions.tls.*": "load_definitions names a file",
    "ssl_options.cacerts.*": "ssl_options.cacertfile names a file",
    "ssl_options.cert": "ssl_options.certfile names a file",
    "ssl_options.key.*": "ssl_options.keyfile names a file",
    "ssl_options.crl_check": "lists of revoked certificates are not read",
    "ssl_options.dh": "ssl_options.dhfile can be left out",
    "ssl_options.psk_identity": "there are no pre-shared keys",
    "ssl_options": "without the keys ssl_options.* there is no TLS",
    "default_limits.*": "load_definitions names a file that can have them",
    "default_policies.*": "load_definitions names a file that can have them",
    "default_users.*": "load_definitions names a file that can have them",
    "default_queue_type": "a vhost has it: leveret ctl add_vhost --default-queue-type",
}
"""RabbitMQ's keys that are refused: without their effect the broker would be less safe, or behave otherwise."""


def entry_of(name: str, table: dict[str, str]) -> str | None:
    """Return a key's text in a table such as ``WITHOUT_EFFECT``; None: the table does not have the key."""
    if name in table:
        return table[name]
    parts = name.split(".")
    families = (".".join(parts[:count]) + ".*" for count in range(len(parts), 0, -1))
    return next((table[family] for family in families if family in table), None)
