"""All settings of one broker in one frozen dataclass; only ``server/config/files.py`` knows the keys of files.

Every ``Config`` is valid: ``__post_init__`` checks every value, and its error names the value found and the
values allowed. The kernels are chosen by ``LEVERET_KERNEL`` in the environment (``core/compiled.py``), not by a
setting.
"""

from __future__ import annotations

import os
import re
from dataclasses import KW_ONLY, dataclass, fields
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Final

from leveret.core import limits
from leveret.core.addresses import AMQPS, FORMS, SCHEMES, UNIX, Address
from leveret.core.batching import POLICIES
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import LOG_LEVELS
from leveret.core.settings import BrokerSettings
from leveret.etcd.settings import EtcdSettings
from leveret.metadata.definitions import REFUSE, UNSUPPORTED_QUEUES

DEFAULT_PORT: Final = 5672
MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "EXTERNAL")
TLS_VERSIONS: Final = ("tlsv1.2", "tlsv1.3")
TLS_LOGIN_NAMES: Final = ("distinguished_name", "common_name", "subject_alternative_name")
TLS_SAN_TYPES: Final = ("dns", "ip", "email", "uri")
INTERNAL: Final = "internal"  # the back end that is the broker's own users
LINK_SEPARATOR: Final = "/"
HTTP_METHODS: Final = ("get", "post")
CLUSTER_NAME: Final = re.compile("[A-Za-z0-9_-]{1,64}")
CLUSTER_FIELDS: Final = (
    "cluster_etcd", "cluster_node", "cluster_listen", "cluster_advertise", "cluster_secret_file",
    "cluster_etcd_user", "cluster_etcd_password", "cluster_etcd_ca_file", "cluster_etcd_cert_file",
    "cluster_etcd_key_file", "cluster_tls_cert_file", "cluster_tls_key_file",
    "cluster_tls_key_password", "cluster_tls_ca_file", "cluster_queue_master_locator",
    "cluster_valid_s", "cluster_lease_s",
)  # fmt: skip
DATA_DEFAULT: Final = "LEVERET_DATA, or ./data"
PAUSE_MINORITY: Final = "pause_minority"
PARTITION_HANDLING: Final = ("ignore", PAUSE_MINORITY, "pause_if_all_down", "autoheal")
LOCATORS: Final = ("client-local", "min-masters", "random")
VALID_S: Final = 2
LEASE_S: Final = 5
ANY_HOST: Final = ("0.0.0.0", "[::]", "*")
MESSAGE_BYTES_CEILING: Final = 536_870_912  # RabbitMQ's ceiling for this setting


DEFAULT_LISTEN: Final = (Address("127.0.0.1", DEFAULT_PORT), Address("::1", DEFAULT_PORT))


def default_data_dir() -> Path:
    """Return the default data directory of commands: LEVERET_DATA, or ``data``."""
    return Path(os.environ.get("LEVERET_DATA") or "data")


class SettingError(ConfigError):
    """The value of a field of ``Config`` is invalid; the text has it and the values allowed."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field


@dataclass(frozen=True, slots=True)
class Config(BrokerSettings):
    """``BrokerSettings``, and the settings of the process around the broker.

    Attributes:
        listen: addresses for AMQP. An address of the default pair that the machine does not have
            (no IPv6) is left out; any other must be bound.
        data_dir: for messages, definitions, node id, lock and control socket; with None, for services
            that embed the broker, everything is in memory and no file is touched.
        log_level: of the log on stderr. The log settings are used by ``leveret serve`` only;
            an embedding service has its own logging.
        log_file: a second destination of the log; None: stderr only.
        log_file_level: of that file; None: ``log_level``.
        log_exchange_level: of the lines published to ``amq.rabbitmq.log``; None: ``log_level``.
        interceptors: names of plug-ins that see and may change messages, in this order.
        auth_backends: who logs users in, in this order: ``internal``, ``http`` or names of plug-ins;
            ``http/internal``: the first knows passwords, the second what users may.
        auth_cache_s: how long answers of back ends other than ``internal`` are kept.
        auth_timeout_s: how long such an answer may take; within ``handshake_s``.
        auth_http_method: of the requests of ``http``: ``get`` or ``post``.
        auth_http_user_path: the URL that logs users in. The following are asked for permissions.
        auth_http_vhost_path: for a vhost.
        auth_http_resource_path: for a queue or exchange.
        auth_http_topic_path: for a routing key of a topic exchange.
        load_definitions: a definitions file, imported at every start before clients can connect. With
            it, an empty data directory gets no default user and no default vhost.
        proxy_protocol: connections to TCP and TLS listeners begin with a header of the PROXY protocol.
        unsupported_queues: what becomes of that file's queues of types that do not exist here, one of
            ``leveret.metadata.definitions.UNSUPPORTED_QUEUES``.
        cluster: the name of the cluster that the node is one of; "": none, and the settings below have no effect.
        cluster_etcd: URLs of the servers of etcd.
        cluster_node: the name of this node, one of its own.
        cluster_listen: ``HOST:PORT`` where other nodes connect to this one; port 0 takes a free port.
        cluster_advertise: ``HOST:PORT`` that they are told; "": ``cluster_listen``.
        cluster_secret_file: with the secret that all nodes share; None: ``LEVERET_CLUSTER_SECRET`` has it.
        cluster_partition_handling: RabbitMQ's setting, one of ``PARTITION_HANDLING``; whatever it is, a node that does
            not reach the majority of etcd serves nobody.
        cluster_etcd_user: of etcd's own users; "": no login.
        cluster_etcd_password: its password.
        cluster_etcd_ca_file: authorities for the certificates of etcd; None: the system's.
        cluster_etcd_cert_file: certificate to show to etcd.
        cluster_etcd_key_file: its key.
        cluster_tls_cert_file: certificate of this node for links with others, which are encrypted then; None: they are
            not.
        cluster_tls_key_file: its key; None: it stands in the certificate's file.
        cluster_tls_key_password: of an encrypted key.
        cluster_tls_ca_file: authorities of the certificates of the other nodes.
        cluster_queue_master_locator: which node a new queue goes to, if neither its arguments nor a policy say so.
        cluster_valid_s: how long a node serves clients without an answer of etcd; the same on all nodes.
        cluster_lease_s: after which the queues of this node that are not durable end if it has lost etcd.
    """

    listen: tuple[Address, ...] = DEFAULT_LISTEN
    data_dir: Path | None = Path("data")
    log_level: str = "info"
    log_file: Path | None = None
    log_file_level: str | None = None
    _: KW_ONLY
    log_exchange_level: str | None = None
    interceptors: tuple[str, ...] = ()
    auth_backends: tuple[str, ...] = (INTERNAL,)
    auth_cache_s: float = 15.0
    auth_timeout_s: float = 8.0
    auth_http_method: str = "get"
    auth_http_user_path: str = "http://localhost:8000/auth/user"
    auth_http_vhost_path: str = "http://localhost:8000/auth/vhost"
    auth_http_resource_path: str = "http://localhost:8000/auth/resource"
    auth_http_topic_path: str = "http://localhost:8000/auth/topic"
    load_definitions: Path | None = None
    proxy_protocol: bool = False
    unsupported_queues: str = REFUSE
    cluster: str = ""
    cluster_etcd: tuple[str, ...] = ()
    cluster_node: str = ""
    cluster_listen: str = ""
    cluster_advertise: str = ""
    cluster_secret_file: Path | None = None
    cluster_partition_handling: str = PAUSE_MINORITY
    cluster_etcd_user: str = ""
    cluster_etcd_password: str = dataclass_field(default="", repr=False)
    cluster_etcd_ca_file: Path | None = None
    cluster_etcd_cert_file: Path | None = None
    cluster_etcd_key_file: Path | None = None
    cluster_tls_cert_file: Path | None = None
    cluster_tls_key_file: Path | None = None
    cluster_tls_key_password: str | None = dataclass_field(default=None, repr=False)
    cluster_tls_ca_file: Path | None = None
    cluster_queue_master_locator: str = LOCATORS[0]
    cluster_valid_s: int = VALID_S
    cluster_lease_s: int = LEASE_S

    def __post_init__(self) -> None:
        folder: object = self.data_dir
        if isinstance(folder, str):  # from untyped code
            object.__setattr__(self, "data_dir", Path(folder))
        self._check_listen()
        self._check_tls()
        self._check_login()
        self._check_wire()
        self._check_ceilings()
        self._check_alarms()
        self._check_names()
        self._check_log()
        self._check_auth()
        self._check_cluster()

    def _check_auth(self) -> None:
        if not self.auth_backends:
            raise SettingError("auth_backends", "is empty; nobody could log in")
        for each in self.auth_backends:
            link = each.split(LINK_SEPARATOR)
            if len(link) > 2 or not all(link):
                raise _refusal("auth_backends", each, "a name, or two as in http/internal")
        _within("auth_cache_s", self.auth_cache_s, 1, 86_400)
        _within("auth_timeout_s", self.auth_timeout_s, 0.1, 3_600)
        if self.auth_http_method not in HTTP_METHODS:
            raise _refusal("auth_http_method", self.auth_http_method, ", ".join(HTTP_METHODS))
        for what in ("user", "vhost", "resource", "topic"):
            field = f"auth_http_{what}_path"
            url = getattr(self, field)
            if not url.startswith(("http://", "https://")) or not url.isprintable() or " " in url:
                raise _refusal(field, url, "a URL such as http://localhost:8000/auth/user")

    def _check_cluster(self) -> None:
        handling = self.cluster_partition_handling
        if handling not in PARTITION_HANDLING:
            allowed = ", ".join(PARTITION_HANDLING)
            raise _refusal("cluster_partition_handling", handling, allowed)
        if not self.cluster:
            defaults = {each.name: each.default for each in fields(self)}
            given = [name for name in CLUSTER_FIELDS if getattr(self, name) != defaults[name]]
            if given:
                raise SettingError(given[0], "has no effect without the name of a cluster: give it")
            return
        self._check_member()
        self._check_links()
        self._check_link_certificates()
        locator = self.cluster_queue_master_locator
        _chosen("cluster_queue_master_locator", (locator,), LOCATORS)
        _within("cluster_valid_s", self.cluster_valid_s, 1, 60)
        _within("cluster_lease_s", self.cluster_lease_s, self.cluster_valid_s + 1, 3_600)
        self.etcd()

    def _check_member(self) -> None:
        for name in ("cluster_etcd", "cluster_node", "cluster_listen"):
            if not getattr(self, name):
                raise SettingError(name, f"is missing: a node of cluster {self.cluster} needs it")
        for name in ("cluster", "cluster_node"):
            if not CLUSTER_NAME.fullmatch(getattr(self, name)):
                raise _refusal(name, getattr(self, name), "1 to 64 letters, digits, - and _")
        if self.data_dir is None:
            raise SettingError("data_dir", "is missing: a node of a cluster needs one")
        if self.load_definitions is not None:
            raise SettingError(
                "load_definitions",
                "is for single nodes: import the file once, with leveret ctl import_definitions",
            )

    def _check_links(self) -> None:
        for name in ("cluster_listen", "cluster_advertise"):
            address = getattr(self, name)
            host, _, port = address.rpartition(":")
            if address and not (host and port.isascii() and port.isdigit() and int(port) < 65_536):
                raise _refusal(name, address, "HOST:PORT")
        if not self.cluster_advertise and self.cluster_listen.rpartition(":")[0] in ANY_HOST:
            raise SettingError(
                "cluster_listen",
                f"is {self.cluster_listen}, which other nodes cannot dial: give cluster_advertise",
            )
        if self.cluster_advertise.endswith(":0"):
            raise _refusal("cluster_advertise", self.cluster_advertise, "HOST:PORT with the port")

    def _check_link_certificates(self) -> None:
        if self.cluster_tls_cert_file is None:
            for name in ("cluster_tls_key_file", "cluster_tls_key_password", "cluster_tls_ca_file"):
                if getattr(self, name) is not None:
                    raise SettingError(name, "has no effect without cluster_tls_cert_file")
        elif self.cluster_tls_ca_file is None:
            raise SettingError(
                "cluster_tls_cert_file",
                "needs cluster_tls_ca_file: the authorities of the other nodes' certificates",
            )

    def etcd(self) -> EtcdSettings:
        """Return where the etcd of the cluster is; ConfigError: that cannot work."""
        try:
            return EtcdSettings(
                self.cluster_etcd,
                self.cluster_etcd_user,
                self.cluster_etcd_password,
                self.cluster_etcd_ca_file,
                self.cluster_etcd_cert_file,
                self.cluster_etcd_key_file,
            )
        except ConfigError as error:
            raise SettingError("cluster_etcd", f"cannot be used: {error}") from error

    def _check_log(self) -> None:
        levels = {
            "log_level": self.log_level,
            "log_file_level": self.log_file_level,
            "log_exchange_level": self.log_exchange_level,
        }
        for field, level in levels.items():
            if level is not None and level not in LOG_LEVELS:
                raise _refusal(field, level, ", ".join(LOG_LEVELS))

    def _check_listen(self) -> None:
        if not self.listen:
            raise SettingError("listen", "has no address; at least one is needed")
        for address in self.listen:
            has_place = bool(address.path) if address.scheme == UNIX else bool(address.host)
            if not has_place or not 0 <= address.port <= 65_535 or address.scheme not in SCHEMES:
                raise _refusal("listen", str(address), FORMS)

    def _check_tls(self) -> None:
        listeners = [each for each in self.listen if each.scheme == AMQPS]
        if listeners and self.tls_cert_file is None:
            raise SettingError("listen", f"has {listeners[0]}, which needs tls_cert_file")
        if self.tls_verify and self.tls_ca_file is None:
            raise SettingError("tls_verify", "needs tls_ca_file: the authorities that are trusted")
        if self.tls_require_certificate and not self.tls_verify:
            raise SettingError("tls_require_certificate", "needs tls_verify")
        if self.tls_depth is not None:
            _within("tls_depth", self.tls_depth, 0, 255)
        _chosen("tls_versions", self.tls_versions, TLS_VERSIONS)
        _within("tls_handshake_s", self.tls_handshake_s, 0.1, 3_600)

    def _check_login(self) -> None:
        _chosen("auth_mechanisms", self.auth_mechanisms, MECHANISMS)
        _chosen("tls_login_from", (self.tls_login_from,), TLS_LOGIN_NAMES)
        _chosen("tls_login_san_type", (self.tls_login_san_type,), TLS_SAN_TYPES)
        _within("tls_login_san_index", self.tls_login_san_index, 0, 1_000)

    def _check_wire(self) -> None:
        _chosen("latency", (self.latency,), tuple(POLICIES))
        if self.frame_max != 0:
            _within("frame_max", self.frame_max, limits.FRAME_MIN_BYTES, 2**31 - 1, "0 or ")
        _within("channel_max", self.channel_max, 0, 65_535)
        _within("heartbeat_s", self.heartbeat_s, 0, 65_535)
        _within("handshake_s", self.handshake_s, 0.1, 3_600)
        _within("message_bytes_max", self.message_bytes_max, 1, MESSAGE_BYTES_CEILING)

    def _check_ceilings(self) -> None:
        if self.consumer_timeout_ms is not None:
            _within("consumer_timeout_ms", self.consumer_timeout_ms, 1, limits.TTL_MS_MAX)
        if self.connections_max is not None:
            _within("connections_max", self.connections_max, 1, 10_000_000)
        _within("producers_max", self.producers_max, 1, 1_000_000)
        _within("producer_expiry_s", self.producer_expiry_s, 1, 10 * 365 * 86_400)
        if self.connection_channels_max is not None:
            _within("connection_channels_max", self.connection_channels_max, 1, 65_535)

    def _check_alarms(self) -> None:
        watermark, share = self.memory_high_watermark, self.disk_free_limit.share
        if watermark.share is not None:
            _within("memory_high_watermark", watermark.share, 0.0, 1.0)
        _within("memory_paging_ratio", self.memory_paging_ratio, 0.0, 0.99)
        if self.memory_total_bytes is not None:
            _within("memory_total_bytes", self.memory_total_bytes, 1, 2**63)
        if share is not None:
            _within("disk_free_limit", share, 0.0, 1_000.0)

    def _check_names(self) -> None:
        names = [("default_user", self.default_user), ("default_vhost", self.default_vhost)]
        names += [("product", self.product), ("product_version", self.product_version)]
        names += [("loopback_users", user) for user in self.loopback_users]
        names += [("default_user_tags", tag) for tag in self.default_user_tags]
        for key, name in names:
            if not 0 < len(name.encode("utf-8", "surrogateescape")) <= limits.SHORTSTR_BYTES_MAX:
                raise _refusal(key, name, "1 to 255 bytes")
        if self.unsupported_queues not in UNSUPPORTED_QUEUES:
            allowed = ", ".join(UNSUPPORTED_QUEUES)
            raise _refusal("unsupported_queues", self.unsupported_queues, allowed)
        if not self.default_pass:
            raise SettingError("default_pass", "is empty; an empty password can never log in")


def _within(key: str, value: float, low: float, high: float, also: str = "") -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise _refusal(key, str(value), f"{also}{low} to {high}")


def _chosen(field: str, found: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    if wrong := [each for each in found if each not in allowed]:
        raise _refusal(field, wrong[0], ", ".join(allowed))
    if not found:
        raise SettingError(field, f"is empty; allowed: {', '.join(allowed)}")


def _refusal(field: str, value: str, allowed: str) -> SettingError:
    return SettingError(field, f'is "{value}"; allowed: {allowed}')
