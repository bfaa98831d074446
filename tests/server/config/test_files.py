"""The two file formats: what each key does, and what each mistake says.

Tests: core/addresses.py, server/config/config.py, server/config/keys.py
"""

from __future__ import annotations

import dataclasses
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from leveret.core.addresses import Address, parse_address
from leveret.core.errors import ConfigError
from leveret.core.sizes import SizeLimit
from leveret.server.config import files as conf_file
from leveret.server.config.config import DEFAULT_LISTEN, Config
from leveret.server.config.keys import KEYS, WITHOUT_EFFECT

EVERY_NATIVE_KEY = """
listen = ["127.0.0.1:5999", "[::1]:5999"]
data_dir = "/var/lib/leveret"
latency = "low"
proxy_protocol = true

[log]
level = "debug"
file = "/var/log/leveret.log"
file_level = "error"
exchange = true
exchange_level = "warning"

[amqp]
handshake_s = 2.5
frame_max = 8192
channel_max = 10
heartbeat_s = 7
message_bytes_max = 1000
consumer_timeout_ms = "infinity"

[limits]
connections = 3
channels_per_connection = 4

[producers]
max = 5
expiry_s = 60

[memory]
high_watermark = 0.25
paging_ratio = 0.75
total = "2GiB"

[disk]
free_limit = "1GB"

[defaults]
user = "hare"
pass = "form"
user_tags = ["monitoring", "management"]
permissions = ["a", "b", "c"]
vhost = "field"

[definitions]
file = "defs.json"
unsupported_queues = "map"

[access]
loopback_users = []
mechanisms = ["EXTERNAL", "PLAIN"]

[tls]
cert_file = "/etc/cert.pem"
key_file = "/etc/key.pem"
key_password = "burrow"
ca_file = "/etc/ca.pem"
verify = true
require_certificate = true
depth = 2
versions = ["tlsv1.3"]
ciphers = ["TLS_AES_256_GCM_SHA384"]
handshake_s = 1.5
login_from = "subject_alternative_name"
login_san_type = "email"
login_san_index = 1

[auth]
backends = ["http", "internal"]
cache_s = 5.0
timeout_s = 2.5

[auth.http]
method = "post"
user_path = "https://auth/u"
vhost_path = "https://auth/v"
resource_path = "https://auth/r"
topic_path = "https://auth/t"

[plugins]
interceptors = ["stamp", "audit"]

[announce]
product = "Leveret"
version = "9"
cluster_name = "burrow"
"""

EVERY_VALUE = {
    "listen": (Address("127.0.0.1", 5999), Address("::1", 5999)),
    "proxy_protocol": True,
    "data_dir": Path("/var/lib/leveret"),
    "latency": "low",
    "log_level": "debug",
    "log_file": Path("/var/log/leveret.log"),
    "log_file_level": "error",
    "log_exchange": True,
    "log_exchange_level": "warning",
    "handshake_s": 2.5,
    "frame_max": 8192,
    "channel_max": 10,
    "heartbeat_s": 7,
    "message_bytes_max": 1000,
    "consumer_timeout_ms": None,
    "connections_max": 3,
    "connection_channels_max": 4,
    "producers_max": 5,
    "producer_expiry_s": 60.0,
    "memory_high_watermark": SizeLimit(share=0.25),
    "memory_paging_ratio": 0.75,
    "memory_total_bytes": 2 * 1024**3,
    "disk_free_limit": SizeLimit(1_000_000_000),
    "default_user": "hare",
    "default_pass": "form",
    "default_user_tags": ("monitoring", "management"),
    "default_permissions": ("a", "b", "c"),
    "default_vhost": "field",
    "load_definitions": Path("defs.json"),
    "unsupported_queues": "map",
    "loopback_users": (),
    "interceptors": ("stamp", "audit"),
    "auth_backends": ("http", "internal"),
    "auth_cache_s": 5.0,
    "auth_timeout_s": 2.5,
    "auth_http_method": "post",
    "auth_http_user_path": "https://auth/u",
    "auth_http_vhost_path": "https://auth/v",
    "auth_http_resource_path": "https://auth/r",
    "auth_http_topic_path": "https://auth/t",
    "product": "Leveret",
    "product_version": "9",
    "cluster_name": "burrow",
    "auth_mechanisms": ("EXTERNAL", "PLAIN"),
    "tls_cert_file": Path("/etc/cert.pem"),
    "tls_key_file": Path("/etc/key.pem"),
    "tls_key_password": "burrow",
    "tls_ca_file": Path("/etc/ca.pem"),
    "tls_verify": True,
    "tls_require_certificate": True,
    "tls_depth": 2,
    "tls_versions": ("tlsv1.3",),
    "tls_ciphers": ("TLS_AES_256_GCM_SHA384",),
    "tls_handshake_s": 1.5,
    "tls_login_from": "subject_alternative_name",
    "tls_login_san_type": "email",
    "tls_login_san_index": 1,
}

CLUSTER_KEYS = """
[cluster]
name = "burrow"
etcd = "https://one:2379, https://two:2379"
node = "hare"
listen = "0.0.0.0:25672"
advertise = "hare.example:25672"
secret_file = "/etc/secret"
etcd_user = "leveret"
etcd_password = "guessed"
etcd_ca_file = "/etc/ca.pem"
etcd_cert_file = "/etc/cert.pem"
etcd_key_file = "/etc/key.pem"
tls_cert_file = "/etc/hare.pem"
tls_key_file = "/etc/hare.key"
tls_key_password = "guessed too"
tls_ca_file = "/etc/nodes.pem"
queue_master_locator = "min-masters"
partition_handling = "autoheal"
valid_s = 4
lease_s = 20
"""
CLUSTER_VALUES = {
    "cluster": "burrow",
    "cluster_etcd": ("https://one:2379", "https://two:2379"),
    "cluster_node": "hare",
    "cluster_listen": "0.0.0.0:25672",
    "cluster_advertise": "hare.example:25672",
    "cluster_secret_file": Path("/etc/secret"),
    "cluster_etcd_user": "leveret",
    "cluster_etcd_password": "guessed",
    "cluster_etcd_ca_file": Path("/etc/ca.pem"),
    "cluster_etcd_cert_file": Path("/etc/cert.pem"),
    "cluster_etcd_key_file": Path("/etc/key.pem"),
    "cluster_tls_cert_file": Path("/etc/hare.pem"),
    "cluster_tls_key_file": Path("/etc/hare.key"),
    "cluster_tls_key_password": "guessed too",
    "cluster_tls_ca_file": Path("/etc/nodes.pem"),
    "cluster_queue_master_locator": "min-masters",
    "cluster_partition_handling": "autoheal",
    "cluster_valid_s": 4,
    "cluster_lease_s": 20,
}

CERTIFICATE = "ssl_options.certfile = c.pem"

RABBITMQ = [
    ("listeners.tcp.default = 5999", "listen", EVERY_VALUE["listen"]),
    ("listeners.tcp.1 = 0.0.0.0:5000", "listen", (Address("0.0.0.0", 5000),)),
    ("listeners.tcp.local = [::1]:5000", "listen", (Address("::1", 5000),)),
    ("listeners.tcp.local = ::1:5000", "listen", (Address("::1", 5000),)),
    (
        "listeners.tcp.a = 127.0.0.1:1\nlisteners.tcp.b = 127.0.0.1:2",
        "listen",
        (Address("127.0.0.1", 1), Address("127.0.0.1", 2)),
    ),
    (
        f"listeners.ssl.default = 5671\n{CERTIFICATE}",
        "listen",
        (*DEFAULT_LISTEN, Address("127.0.0.1", 5671, "amqps"), Address("::1", 5671, "amqps")),
    ),
    (
        f"listeners.ssl.1 = 0.0.0.0:5671\nlisteners.tcp = none\n{CERTIFICATE}",
        "listen",
        (Address("0.0.0.0", 5671, "amqps"),),
    ),
    ("listeners.ssl = none", "listen", DEFAULT_LISTEN),
    ("proxy_protocol = true", "proxy_protocol", True),
    ("ssl_options.certfile = /c.pem", "tls_cert_file", Path("/c.pem")),
    ("ssl_options.keyfile = /k.pem", "tls_key_file", Path("/k.pem")),
    ("ssl_options.password = a b", "tls_key_password", "a b"),
    ("ssl_options.cacertfile = /ca.pem", "tls_ca_file", Path("/ca.pem")),
    ("ssl_options.cacertfile = /ca.pem\nssl_options.verify = verify_peer", "tls_verify", True),
    ("ssl_options.verify = verify_none", "tls_verify", False),
    ("ssl_options.fail_if_no_peer_cert = false", "tls_require_certificate", False),
    ("ssl_options.depth = 2", "tls_depth", 2),
    (
        "ssl_options.versions.1 = tlsv1.3\nssl_options.versions.2 = tlsv1.2",
        "tls_versions",
        ("tlsv1.3", "tlsv1.2"),
    ),
    (
        "ssl_options.ciphers.1 = TLS_AES_128_GCM_SHA256",
        "tls_ciphers",
        ("TLS_AES_128_GCM_SHA256",),
    ),
    ("ssl_handshake_timeout = 2500", "tls_handshake_s", 2.5),
    ("ssl_cert_login_from = common_name", "tls_login_from", "common_name"),
    ("ssl_cert_login_from = subject_alt_name", "tls_login_from", "subject_alternative_name"),
    ("ssl_cert_login_san_type = email", "tls_login_san_type", "email"),
    ("ssl_cert_login_san_index = 1", "tls_login_san_index", 1),
    (
        "auth_mechanisms.1 = EXTERNAL\nauth_mechanisms.2 = PLAIN",
        "auth_mechanisms",
        ("EXTERNAL", "PLAIN"),
    ),
    ("heartbeat = 7", "heartbeat_s", 7),
    ("frame_max = 8192", "frame_max", 8192),
    ("frame_max = 0", "frame_max", 0),
    ("channel_max = 10 # ten", "channel_max", 10),
    ("handshake_timeout = 2500", "handshake_s", 2.5),
    ("default_vhost = field", "default_vhost", "field"),
    ("default_user = hare", "default_user", "hare"),
    ("default_pass = a = b", "default_pass", "a = b"),
    (
        "default_user_tags.monitoring = true\ndefault_user_tags.administrator = false",
        "default_user_tags",
        ("monitoring",),
    ),
    ("default_permissions.write = ^a", "default_permissions", (".*", "^a", ".*")),
    ("loopback_users = none", "loopback_users", ()),
    ("loopback_users.guest = false", "loopback_users", ()),
    ("loopback_users.hare = true", "loopback_users", ("hare",)),
    ("max_message_size = 1000", "message_bytes_max", 1000),
    ("log.console.level = debug", "log_level", "debug"),
    ("log.console.level = notice", "log_level", "info"),
    ("log.console = false", "log_level", "none"),
    ("log.level = error", "log_level", "error"),
    ("log.file = a.log", "log_file", Path("a.log")),
    ("log.file = false", "log_file", None),
    ("log.file = a.log\nlog.file.level = error", "log_file_level", "error"),
    ("log.file.level = error", "log_level", "error"),
    ("log.exchange = true", "log_exchange", True),
    (
        "auth_backends.2 = internal\nauth_backends.1 = rabbit_auth_backend_http",
        "auth_backends",
        ("http", "internal"),
    ),
    (
        "auth_backends.2.authn = internal\nauth_backends.1.authz = internal\nauth_backends.1.authn = http",
        "auth_backends",
        ("http/internal", "internal"),
    ),
    ("auth_cache.cache_ttl = 2500", "auth_cache_s", 2.5),
    ("auth_http.request_timeout = 1500", "auth_timeout_s", 1.5),
    ("auth_http.http_method = post", "auth_http_method", "post"),
    ("auth_http.user_path = http://a/u", "auth_http_user_path", "http://a/u"),
    ("auth_http.vhost_path = http://a/v", "auth_http_vhost_path", "http://a/v"),
    ("auth_http.resource_path = http://a/r", "auth_http_resource_path", "http://a/r"),
    ("auth_http.topic_path = http://a/t", "auth_http_topic_path", "http://a/t"),
    ("log.exchange.level = warning", "log_exchange_level", "warning"),
    ("consumer_timeout = 5000", "consumer_timeout_ms", 5000),
    ("consumer_timeout = undefined", "consumer_timeout_ms", None),
    ("connection_max = 9", "connections_max", 9),
    ("connection_max = infinity", "connections_max", None),
    ("load_definitions = /d.json", "load_definitions", Path("/d.json")),
    ("definitions.local.path = /d.json", "load_definitions", Path("/d.json")),
    ("vm_memory_high_watermark.relative = 0.6", "memory_high_watermark", SizeLimit(share=0.6)),
    ("vm_memory_high_watermark.absolute = 2GB", "memory_high_watermark", SizeLimit(2 * 10**9)),
    (
        "vm_memory_high_watermark.relative = 0.6\nvm_memory_high_watermark.absolute = 2GB",
        "memory_high_watermark",
        SizeLimit(share=0.6),
    ),
    ("vm_memory_high_watermark_paging_ratio = 0.75", "memory_paging_ratio", 0.75),
    ("latency = low", "latency", "low"),
    ("total_memory_available_override_value = 1024M", "memory_total_bytes", 2**30),
    ("disk_free_limit.relative = 1.5", "disk_free_limit", SizeLimit(share=1.5)),
    ("disk_free_limit.absolute = 50000kB", "disk_free_limit", SizeLimit(50_000_000)),
    (
        "disk_free_limit.relative = 1.5\ndisk_free_limit.absolute = 1GB",
        "disk_free_limit",
        SizeLimit(share=1.5),
    ),
    ("product.name = Leveret", "product", "Leveret"),
    ("product.version = 9", "product_version", "9"),
    ("cluster_name = burrow", "cluster_name", "burrow"),
    ("cluster_partition_handling = pause_minority", "cluster_partition_handling", "pause_minority"),
    ("queue_master_locator = random", "cluster_queue_master_locator", "client-local"),
    ("management.load_definitions = /d.json", "load_definitions", Path("/d.json")),
    ("log.dir = /var/log\nlog.file = a.log", "log_file", Path("/var/log/a.log")),
    ("log.file = /a.log\nlog.dir = /var/log", "log_file", Path("/a.log")),
    ("heartbeat = 1\nheartbeat = 2", "heartbeat_s", 2),
]

MISTAKES = [
    ("a.toml", "frame_max = 1", '1: unknown key "frame_max"; did you mean "amqp.frame_max"?'),
    ("a.toml", "[amqp]\nheartbeat = 3", '2: unknown key "amqp.heartbeat"; did you mean "amqp.heartbeat_s"?'),
    ("a.toml", "[amqp]\n\nchanel_max = 3", '3: unknown key "amqp.chanel_max"; did you mean "amqp.channel_max"?'),
    ("a.toml", "zzz = 3", '1: unknown key "zzz"'),
    ("a.toml", "[amqp]\nframe_max = 5", '2: amqp.frame_max is "5"; allowed: 0 or 4096 to 2147483647'),
    ("a.toml", '[amqp]\nframe_max = "5"', '2: amqp.frame_max is "5"; allowed: an integer'),
    ("a.toml", "[amqp]\nframe_max = true", '2: amqp.frame_max is "True"; allowed: an integer'),
    ("a.toml", "listen = 5", '1: listen is "5"; allowed: a list of strings'),
    ("a.toml", "listen = []", "1: listen has no address; at least one is needed"),
    ("a.toml", 'listen = "x:y"', '1: listen: address "x:y" is not HOST:PORT with a port from 0 to 65535'),
    ("a.toml", "[defaults]\npermissions = ['a']", "2: defaults.permissions is \"['a']\"; allowed: three patterns: configure, write, read"),
    ("a.toml", '[log]\nlevel = "loud"', '2: log.level is "loud"; allowed: debug, info, warning, error, critical, none'),
    ("a.toml", "listen =", ": not valid TOML: Invalid value (at end of document)"),
    ("a.conf", "# fine\nheartbeats = 3", '2: unknown key "heartbeats"; did you mean "heartbeat"?'),
    ("a.conf", "listener.tcp.default = 3", '1: unknown key "listener.tcp.default"; did you mean "listeners.tcp.default"?'),
    ("a.conf", "log.consol.level = info", '1: unknown key "log.consol.level"; did you mean "log.console.level"?'),
    ("a.conf", "heartbeat", '1: "heartbeat" is not key = value'),
    ("a.conf", "heartbeat = soon", '1: heartbeat is "soon"; allowed: an integer'),
    ("a.conf", "\nheartbeat = 70000", '2: heartbeat is "70000"; allowed: 0 to 65535'),
    ("a.conf", "loopback_users = all", '1: loopback_users is "all"; allowed: none'),
    ("a.conf", "loopback_users.guest = no", '1: loopback_users.guest is "no"; allowed: true or false'),
    ("a.conf", "listeners.ssl.default = 5671", "1: listeners.ssl.default has amqps://127.0.0.1:5671, which needs ssl_options.certfile"),
    ("a.conf", "listeners.ssl = 5671", '1: unknown key "listeners.ssl"; did you mean "listeners.ssl.default"?'),
    ("a.conf", "listeners.tcp.a = unix:///x", '1: listeners.tcp.a is "unix:///x"; allowed: PORT, HOST:PORT'),
    ("a.conf", "ssl_options.verify = true", '1: ssl_options.verify is "true"; allowed: verify_peer, verify_none'),
    ("a.conf", "ssl_options.verify = verify_peer", "1: ssl_options.verify needs ssl_options.cacertfile: the authorities that are trusted"),
    ("a.conf", "ssl_options.fail_if_no_peer_cert = true", "1: ssl_options.fail_if_no_peer_cert needs ssl_options.verify"),
    ("a.conf", "ssl_options.versions.1 = tlsv1.1", '1: ssl_options.versions.1 is "tlsv1.1"; allowed: tlsv1.2, tlsv1.3'),
    ("a.conf", "ssl_options.depth = 256", '1: ssl_options.depth is "256"; allowed: 0 to 255'),
    ("a.conf", "ssl_options.crl_check = peer", "1: ssl_options.crl_check is a key of RabbitMQ's that Leveret lacks: lists of revoked certificates are not read"),
    ("a.conf", "ssl_options.certfil = a", '1: unknown key "ssl_options.certfil"; did you mean "ssl_options.certfile"?'),
    ("a.conf", "credential_validator.min_length = 8", "1: credential_validator.min_length is a key of RabbitMQ's that Leveret lacks: passwords of new users are not checked"),
    ("a.conf", "handshake_timeout = 10", '1: handshake_timeout (in seconds) is "0.01"; allowed: 0.1 to 3600'),
    ("a.conf", "log.console = no", '1: log.console is "no"; allowed: true or false'),
    ("a.conf", "auth_mechanisms = PLAIN", '1: unknown key "auth_mechanisms"; did you mean "auth_mechanisms.1"?'),
    ("a.conf", "auth_mechanisms.1 = RABBIT-CR-DEMO", '1: auth_mechanisms.1 is "RABBIT-CR-DEMO"; allowed: PLAIN, AMQPLAIN, EXTERNAL'),
    ("a.conf", "ssl_cert_login_from = cn", '1: ssl_cert_login_from is "cn"; allowed: distinguished_name, common_name, subject_alternative_name'),
    ("a.conf", "ssl_cert_login_san_type = other_name", '1: ssl_cert_login_san_type is "other_name"; allowed: dns, ip, email, uri'),
    ("a.toml", "[tls]\nkey_password = 77", '2: tls.key_password is "..."; allowed: a string'),
    ("a.toml", "[tls]\nverify = 1", '2: tls.verify is "1"; allowed: true or false'),
    ("a.toml", 'listen = "https://a:1"', '1: listen: address "https://a:1" is not HOST:PORT, amqps://HOST:PORT or unix:///PATH'),
    ("a.toml", 'listen = "unix://a"', '1: listen: address "unix://a" is not unix:///PATH with an absolute path'),
    ("a.toml", 'listen = "1?a=b"', '1: listen: address "1?a=b" has the option "a=b"; allowed: proxy_protocol=true|false'),
    ("a.toml", 'listen = "1?mode=777"', '1: listen: address "1?mode=777" has the option "mode=777"; allowed: proxy_protocol=true|false'),
    ("a.conf", "listeners.tcp = none", "1: listeners.tcp has no address; at least one is needed"),
    ("a.conf", "default_permissions.wrte = a", '1: unknown key "default_permissions.wrte"; did you mean "default_permissions.write"?'),
    ("a.conf", "default_user_tags = administrator", '1: unknown key "default_user_tags"; did you mean "default_user_tags.NAME"?'),
    ("a.conf", "net_tick_time = 1", '1: unknown key "net_tick_time"; did you mean "net_ticktime"?'),
    ("a.conf", "disk_free_limit = 1GB", '1: unknown key "disk_free_limit"; did you mean "disk_free_limit.relative"?'),
    ("a.conf", "disk_free_limit.absolute = 1TB", '1: disk_free_limit.absolute is "1TB"; allowed: a size such as 1024, 512MiB or 2GB'),
    ("a.conf", "vm_memory_high_watermark.relative = 1.2", '1: vm_memory_high_watermark.relative is "1.2"; allowed: 0.0 to 1.0'),
    ("a.conf", "vm_memory_high_watermark_paging_ratio = 1", '1: vm_memory_high_watermark_paging_ratio is "1.0"; allowed: 0.0 to 0.99'),
    ("a.conf", "latency = high", '1: latency is "high"; allowed: low, balanced'),
    ("a.toml", "latency = 5", '1: latency is "5"; allowed: a string'),
    ("a.toml", "[disk]\nfree_limit = -1", '2: disk.free_limit is "-1"; allowed: bytes, or a size such as 512MiB or 2GB'),
    ("a.conf", "auth_backends.1 = ldap", '1: auth_backends.1 is "ldap"; allowed: internal, rabbit_auth_backend_internal, http, rabbit_auth_backend_http'),
    ("a.conf", "auth_backends.1.cache = http", '1: unknown key "auth_backends.1.cache"; did you mean "auth_backends.1"?'),
    ("a.conf", "auth_backends.1 = http\nauth_backends.1.authz = http", "2: auth_backends.1.authz is given twice"),
    ("a.toml", '[auth]\nbackends = ["http/"]', '2: auth.backends is "http/"; allowed: a name, or two as in http/internal'),
    ("a.toml", "[auth]\nbackends = []", "2: auth.backends is empty; nobody could log in"),
    ("a.toml", '[auth.http]\nmethod = "put"', '2: auth.http.method is "put"; allowed: get, post'),
    ("a.toml", '[auth.http]\nuser_path = "/user"', '2: auth.http.user_path is "/user"; allowed: a URL such as http://localhost:8000/auth/user'),
    ("a.conf", "log.console.level = loud", '1: log.console.level is "loud"; allowed: debug, info, warning, error, critical, none'),
]  # fmt: skip


def written(folder: Path, name: str, source: str) -> Path:
    path = folder / name
    path.write_text(source, "utf-8")
    return path


def test_every_native_key_reaches_its_field(tmp_path: Path) -> None:
    config = conf_file.load(written(tmp_path, "leveret.toml", EVERY_NATIVE_KEY))

    assert {f.name: getattr(config, f.name) for f in dataclasses.fields(config)} == {
        **EVERY_VALUE,
        **{f.name: f.default for f in dataclasses.fields(config) if f.name in CLUSTER_VALUES},
    }


def test_every_key_of_a_cluster_reaches_its_field(tmp_path: Path) -> None:
    config = conf_file.load(written(tmp_path, "leveret.toml", CLUSTER_KEYS))

    assert {name: getattr(config, name) for name in CLUSTER_VALUES} == CLUSTER_VALUES
    assert "guessed" not in repr(config)


def test_the_locator_of_rabbitmqs_format_has_no_effect_on_a_single_node(tmp_path: Path) -> None:
    file = written(tmp_path, "rabbitmq.conf", "queue_master_locator = random")
    assert conf_file.load(file, CLUSTER).cluster_queue_master_locator == "random"

    checked = conf_file.check(file)
    assert checked.warnings == [f"{file}:1: queue_master_locator has no effect on a single node"]
    assert checked.config == Config()


CLUSTER = {
    "cluster": "c", "cluster_etcd": ("http://h:1",), "cluster_node": "a", "cluster_listen": "h:1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cluster_etcd": ()}, "cluster_etcd is missing: a node of cluster c needs it"),
        ({"cluster_node": ""}, "cluster_node is missing"),
        ({"cluster": ""}, "cluster_etcd has no effect without the name of a cluster"),
        ({"cluster": "a b"}, 'cluster is "a b"; allowed: 1 to 64 letters'),
        ({"cluster_node": "a.b"}, 'cluster_node is "a.b"; allowed: 1 to 64 letters'),
        ({"cluster_listen": "7000"}, 'cluster_listen is "7000"; allowed: HOST:PORT'),
        ({"cluster_listen": "0.0.0.0:1"}, "cannot dial: give cluster_advertise"),
        ({"cluster_advertise": "h:0"}, "allowed: HOST:PORT with the port"),
        ({"cluster_etcd": ("h:1",)}, "is not http://HOST:PORT"),
        ({"cluster_etcd_user": "u"}, "a login to etcd needs both user and password"),
        ({"data_dir": None}, "data_dir is missing"),
        ({"load_definitions": Path("d")}, "load_definitions is for single nodes"),
        ({"cluster_tls_cert_file": Path("a.pem")}, "needs cluster_tls_ca_file"),
        ({"cluster_tls_ca_file": Path("a.pem")}, "has no effect without cluster_tls_cert_file"),
        ({"cluster_tls_key_password": "x"}, "has no effect without cluster_tls_cert_file"),
        ({"cluster_queue_master_locator": "near"}, "allowed: client-local, min-masters, random"),
        ({"cluster_lease_s": 2}, "allowed: 3 to 3600"),
        ({"cluster_valid_s": 0}, "allowed: 1 to 60"),
        ({"cluster_valid_s": 5}, 'cluster_lease_s is "5"; allowed: 6 to 3600'),
    ],
)
def test_settings_of_a_cluster_that_cannot_work_are_refused(
    change: dict[str, Any], said: str
) -> None:
    Config(**CLUSTER)
    with pytest.raises(ConfigError, match=re.escape(said)):
        Config(**(CLUSTER | change))


def test_every_field_of_the_configuration_has_a_native_key() -> None:
    assert sorted(key.field for key in KEYS) == sorted(f.name for f in dataclasses.fields(Config))


@pytest.mark.parametrize(("source", "field", "value"), RABBITMQ)
def test_a_key_of_rabbitmq_has_its_effect(
    tmp_path: Path, source: str, field: str, value: object
) -> None:
    config = conf_file.load(written(tmp_path, "rabbitmq.conf", source))

    assert getattr(config, field) == value


def test_every_key_of_rabbitmq_in_the_table_is_tried_above() -> None:
    tried = "\n".join(source for source, _, _ in RABBITMQ)

    for name in (name for key in KEYS for name in key.rabbitmq.split()):
        prefix = re.escape(name.partition("$")[0])
        if not name.startswith("default_permissions"):
            assert re.search(rf"^{prefix}", tried, re.MULTILINE), name


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_key_without_effect_is_accepted_and_said(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = name.replace("*", "a.b")
    with caplog.at_level(logging.WARNING):
        config = conf_file.load(written(tmp_path, "rabbitmq.conf", f"{key} = 10"))

    assert config == Config()
    assert f"rabbitmq.conf:1: {key} has no effect: {WITHOUT_EFFECT[name]}" in caplog.text


@pytest.mark.parametrize(("name", "source", "said"), MISTAKES)
def test_a_mistake_is_told_in_one_line_with_its_place(
    tmp_path: Path, name: str, source: str, said: str
) -> None:
    path = written(tmp_path, name, source)

    with pytest.raises(ConfigError) as caught:
        conf_file.load(path)

    assert str(caught.value) == f"{path}{said if said.startswith(':') else ':' + said}"


MANY = """\
heartbeat = soon
chanel_max = 10
nonsense
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
auth_backends.1 = ldap
auth_backends.2 = internal
auth_backends.3 = kerberos
ssl_options.versions.1 = tlsv1.1
ssl_options.versions.2 = tlsv1
net_ticktime = 60
vm_memory_high_watermark.relative = 4
vm_memory_high_watermark_paging_ratio = 2
management.tcp.port = 15672
"""


def test_all_errors_of_a_file_are_told_at_once_in_its_order(tmp_path: Path) -> None:
    path = written(tmp_path, "rabbitmq.conf", MANY)

    with pytest.raises(ConfigError) as caught:
        conf_file.load(path)

    lines = str(caught.value).split("\n")
    found = [int(line.removeprefix(f"{path}:").partition(":")[0]) for line in lines]
    assert found == [1, 2, 3, 4, 6, 8, 9, 10, 12, 13]  # 5 follows from 4
    checked = conf_file.check(path)
    assert checked.errors == lines
    assert [text.partition(" ")[0] for text in checked.warnings] == [f"{path}:11:", f"{path}:14:"]


def test_all_errors_of_a_native_file_are_told_at_once(tmp_path: Path) -> None:
    source = 'listen = 5\nlatency = "high"\n[amqp]\nheartbeat = 1\nframe_max = 5\n'
    path = written(tmp_path, "leveret.toml", source)

    found = [text.partition(" ")[0] for text in conf_file.check(path).errors]

    assert found == [f"{path}:{line}:" for line in (1, 2, 4, 5)]


def test_an_error_of_the_command_line_is_told_with_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "leveret.toml", "[amqp]\nframe_max = 5\n")

    checked = conf_file.check(path, {"log_level": "loud"})

    assert len(checked.errors) == 2
    assert checked.errors[1].startswith('log_level is "loud"')


def test_a_log_folder_without_a_log_file_is_warned_of(tmp_path: Path) -> None:
    checked = conf_file.check(written(tmp_path, "rabbitmq.conf", "log.dir = /var/log"))

    assert checked.config == Config()
    assert "log.dir has no effect without log.file" in checked.warnings[0]


@pytest.mark.parametrize(
    ("name", "source", "key"),
    [
        ("a.conf", "vm_memory_high_watermark.relative = 0", "vm_memory_high_watermark.relative"),
        ("a.conf", "vm_memory_high_watermark.absolute = 0", "vm_memory_high_watermark.absolute"),
        ("a.toml", "[memory]\nhigh_watermark = 0.0", "memory.high_watermark"),
    ],
)
def test_a_watermark_that_blocks_all_publishers_is_warned_of(
    tmp_path: Path, name: str, source: str, key: str
) -> None:
    (warning,) = conf_file.check(written(tmp_path, name, source)).warnings

    assert f"{key} is 0: the memory alarm never ends, and all publishers are blocked" in warning


def test_a_file_of_erlang_terms_is_refused_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, "advanced.config", "[{rabbit, [{heartbeat, 60}]}].")

    with pytest.raises(ConfigError, match="has the form of Erlang's terms"):
        conf_file.load(path)


def test_the_environment_names_the_data_directory_where_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_DATA", "/env")
    file = written(tmp_path, "leveret.toml", 'data_dir = "/file"')

    assert conf_file.load(None).data_dir == Path("/env")
    assert conf_file.load(file).data_dir == Path("/file")
    assert conf_file.load(file, {"data_dir": Path("/given")}).data_dir == Path("/given")
    monkeypatch.setenv("LEVERET_DATA", "")
    assert conf_file.load(None).data_dir == Path("data")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        conf_file.load(tmp_path / "none.toml")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="is not UTF-8"):
        conf_file.load(tmp_path / "a.toml")


def test_the_command_line_overrules_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "leveret.toml", 'data_dir = "a"\n[log]\nlevel = "debug"')

    config = conf_file.load(path, {"data_dir": Path("b")})

    assert (config.data_dir, config.log_level) == (Path("b"), "debug")


def test_a_bad_value_from_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "leveret.toml", '[log]\nlevel = "debug"')

    with pytest.raises(ConfigError) as caught:
        conf_file.load(path, {"log_level": "loud"})

    assert str(path) not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channel_max": 65_536}, 'channel_max is "65536"'),
        ({"handshake_s": 0}, 'handshake_s is "0"'),
        ({"message_bytes_max": 536_870_913}, "message_bytes_max is"),
        ({"consumer_timeout_ms": 0}, "consumer_timeout_ms is"),
        ({"connections_max": 0}, "connections_max is"),
        ({"connection_channels_max": 0}, "connection_channels_max is"),
        ({"latency": "none"}, 'latency is "none"; allowed: low, balanced'),
        ({"producers_max": 0}, "producers_max is"),
        ({"producer_expiry_s": 0.5}, "producer_expiry_s is"),
        ({"default_user": "x" * 256}, "default_user is"),
        ({"default_vhost": ""}, "default_vhost is"),
        ({"default_pass": ""}, "default_pass is empty"),
        ({"listen": (Address("", 1),)}, "listen is"),
    ],
)
def test_a_value_out_of_range_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        Config(**change)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("5672", Address("127.0.0.1", 5672)),
        ("amqp://[::1]:5672", Address("::1", 5672)),
        ("amqps://0.0.0.0:5671", Address("0.0.0.0", 5671, "amqps")),
        ("amqps://h:1?proxy_protocol=true", Address("h", 1, "amqps", proxy_protocol=True)),
        ("h:1?proxy_protocol=false", Address("h", 1, proxy_protocol=False)),
        ("unix:///run/a b.sock", Address("", 0, "unix", path="/run/a b.sock")),
        (
            "unix:///s?mode=0600&proxy_protocol=true",
            Address("", 0, "unix", path="/s", mode=0o600, proxy_protocol=True),
        ),
    ],
)
def test_an_address_has_a_scheme_and_options(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("address", "shown", "url"),
    [
        (Address("h", 1), "h:1", "amqp://h:1"),
        (Address("::1", 1, "amqps"), "amqps://[::1]:1", "amqps://[::1]:1"),
        (Address("", 0, "unix", path="/s"), "unix:///s", "unix:///s"),
    ],
)
def test_an_address_is_shown_with_its_scheme(address: Address, shown: str, url: str) -> None:
    assert (str(address), address.url) == (shown, url)


def test_passwords_are_not_in_the_text_of_a_configuration() -> None:
    config = Config(default_pass="canary-1", tls_key_password="canary-2")

    assert "canary" not in repr(config)


@pytest.mark.parametrize("value", ["ignore", "pause_if_all_down", "autoheal", "pause_minority"])
def test_another_handling_of_partitions_than_pause_minority_is_warned_of(
    tmp_path: Path, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, "rabbitmq.conf", f"cluster_partition_handling = {value}")
    with caplog.at_level(logging.WARNING):
        config = conf_file.load(path, CLUSTER)

    assert config.cluster_partition_handling == value
    text = f"rabbitmq.conf:1: cluster_partition_handling is {value}, but Leveret always does pause_minority"
    assert (text in caplog.text) == (value != "pause_minority")


def test_the_handling_of_partitions_has_no_effect_on_a_single_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, "leveret.toml", '[cluster]\npartition_handling = "autoheal"\n')
    with caplog.at_level(logging.WARNING):
        conf_file.load(path)

    assert (
        "leveret.toml:2: cluster.partition_handling has no effect on a single node" in caplog.text
    )


def test_further_keys_of_pause_if_all_down_are_warned_of_and_unknown_ones_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = "cluster_partition_handling"
    lines = [
        f"{key} = pause_if_all_down",
        f"{key}.pause_if_all_down.recover = ignore",
        f"{key}.pause_if_all_down.nodes.1 = rabbit@a",
    ]
    with caplog.at_level(logging.WARNING):
        conf_file.load(written(tmp_path, "rabbitmq.conf", "\n".join(lines)), CLUSTER)
    assert caplog.text.count("has no effect") == 2

    for wrong in (f"{key} = sometimes", f"{key}.pause_minority.nodes.1 = rabbit@a"):
        with pytest.raises(ConfigError, match=r"rabbitmq\.conf:1"):
            conf_file.load(written(tmp_path, "rabbitmq.conf", wrong), CLUSTER)
