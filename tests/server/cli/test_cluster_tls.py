"""TLS of the links between the nodes of ``leveret serve --cluster``, with a real etcd and certificates of openssl.

Tests: server/link_certificates.py
"""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
from pathlib import Path

import pytest

from leveret.actors.links.node import Node
from leveret.actors.links.security import Security
from leveret.actors.runtime.runtime import Runtime
from leveret.core.errors import ConfigError
from leveret.server.config.config import Config
from leveret.server.link_certificates import LinkCertificates
from rigs.certificates import Authority, Issued
from rigs.cluster.etcd import Etcd
from rigs.cluster.served_cluster import SECRET, channel, serving
from rigs.nodes import BrokerUnderTest, leveret_program
from rigs.programs import ended
from rigs.waiting import eventually, wait_until


def with_tls(authority: Authority, issued: Issued) -> list[str]:
    return [
        "--cluster-tls-cert", str(issued.cert),
        "--cluster-tls-key", str(issued.key),
        "--cluster-tls-ca", str(authority.cert),
    ]  # fmt: skip


def log_of(node: BrokerUnderTest) -> str:
    assert node.log is not None
    return node.log.read_text()


def link_port(node: BrokerUnderTest) -> int:
    """Return the port where other nodes dial a node."""
    (line,) = [line for line in node.control("listeners").splitlines() if "clustering" in line]
    return int(re.findall(r"port: (\d+)", line)[0])


def shown_to(place: tuple[str, int], context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a node shows."""
    with (
        socket.create_connection(place) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.version() == "TLSv1.3"
        return secure.getpeercert(True)


def test_nodes_speak_tls_and_certificates_are_replaced_while_they_run(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    authority = Authority(tmp_path)
    one, two = authority.issue("a"), authority.issue("b")
    with (
        serving(tmp_path / "a", etcd, name, "a", *with_tls(authority, one)) as a,
        serving(tmp_path / "b", etcd, name, "b", *with_tls(authority, two)) as b,
    ):
        with channel(a) as on_a, channel(b) as on_b:
            on_a.queue_declare("q", durable=True)
            on_b.basic_publish("", "q", b"over TLS", mandatory=True)
            assert on_a.basic_get("q", auto_ack=True)[2] == b"over TLS"
        said = ended([leveret_program(), "status", "--data", str(a.data)], tmp_path).stdout
        assert "node a, other nodes: b up\n" in said
        place = "127.0.0.1", link_port(a)
        before = shown_to(place, authority.client(one))

        newer = authority.issue("a")
        os.replace(newer.cert, one.cert)
        os.replace(newer.key, one.key)
        assert a.process is not None
        a.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "certificates of links reloaded" in log_of(a))
        assert shown_to(place, authority.client(one)) != before


@pytest.mark.slow
def test_a_node_whose_certificate_has_expired_is_not_linked_and_the_log_says_why(
    tmp_path: Path, etcd: Etcd, name: str
) -> None:
    authority = Authority(tmp_path)
    right = with_tls(authority, authority.issue("a"))
    expired = with_tls(authority, authority.issue("b", days=-1))
    with (
        serving(tmp_path / "a", etcd, name, "a", *right) as a,
        serving(tmp_path / "b", etcd, name, "b", *expired) as b,  # ready, though not linked
    ):
        assert "nodes are not linked, their queues are down nodes=" in log_of(b)
        assert "its certificate is refused: certificate has expired" in log_of(a)


def contexts(authority: Authority, issued: Issued, key: Path | None = None) -> LinkCertificates:
    return LinkCertificates(
        Config(
            cluster="c",
            cluster_etcd=("http://127.0.0.1:1",),
            cluster_node="a",
            cluster_listen="127.0.0.1:0",
            cluster_tls_cert_file=issued.cert,
            cluster_tls_key_file=key or issued.key,
            cluster_tls_ca_file=authority.cert,
        )
    )


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("expired", "its certificate is refused: certificate has expired"),
        ("of another authority", "its certificate is refused: unable to get local issuer"),
        ("of another host", "its certificate is refused: IP address mismatch"),
        ("none", "TLS handshake failed: "),
    ],
)
@pytest.mark.parametrize("dials", ["right", "wrong"])
async def test_a_wrong_certificate_is_refused_from_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str, text: str, dials: str
) -> None:
    authority = Authority(tmp_path)
    issuer = Authority(tmp_path, "Other") if case == "of another authority" else authority
    names = (
        "subjectAltName=DNS:elsewhere"
        if case == "of another host"
        else "subjectAltName=IP:127.0.0.1"
    )
    wrong = contexts(authority, issuer.issue("b", names, days=-1 if case == "expired" else 2))
    right = contexts(authority, authority.issue("a"))
    a = Node(Runtime(name="a"), security(right))
    b = Node(Runtime(name="b"), security(None if case == "none" else wrong))
    dialler, listener = (a, b) if dials == "right" else (b, a)
    dialler.dial(await listener.listen("127.0.0.1:0"))
    if case == "of another host" and dials == "wrong":
        await dialler.connected("a", 10.0)  # who dials comes from anywhere
    elif case == "none" and dials == "right":
        await eventually(lambda: "the other side is no node of Leveret's" in caplog.text)
    else:
        await eventually(lambda: text in caplog.text)
        assert a.nodes == b.nodes == []
    for node in (a, b):
        await node.close()
        await node.runtime.shutdown()


def security(made: LinkCertificates | None) -> Security:
    if made is None:
        return Security(SECRET.encode())
    return Security(SECRET.encode(), made.listener, made.dialler)


def test_certificates_of_both_sides_are_demanded_and_the_hosts_name_is_checked(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    made = contexts(authority, authority.issue("a"))
    assert made.listener.verify_mode is made.dialler.verify_mode is ssl.CERT_REQUIRED
    assert made.dialler.check_hostname


def test_files_that_do_not_fit_leave_the_former_certificate_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("a")
    made = contexts(authority, issued)
    os.replace(authority.issue("a").cert, issued.cert)  # its key is still to come
    made.reload_if_changed()
    assert "not reloaded" not in caplog.text, "the files may still be changing"
    made.reload_if_changed()
    assert "certificates of links not reloaded, the former ones stay" in caplog.text
    assert f"key {issued.key} does not belong to certificate {issued.cert}" in caplog.text

    with pytest.raises(ConfigError, match="does not belong to certificate"):
        contexts(authority, issued)
