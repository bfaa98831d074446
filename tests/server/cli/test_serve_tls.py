"""``leveret serve`` with TLS, a Unix socket and certificates that change; other people's clients on it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import aio_pika
import pika
import pytest

from leveret.server.control_client import ask
from rigs.certificates import Authority, Issued
from rigs.nodes import BrokerUnderTest, leveret_program
from rigs.programs import ended
from rigs.waiting import wait_until

OwnLeveret = Callable[..., BrokerUnderTest]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def served(authority: Authority, tmp_path: Path) -> Issued:
    """The broker's certificate, in files of the test's own."""
    issued = authority.issue("localhost")
    shutil.copy(issued.cert, tmp_path / "cert.pem")
    shutil.copy(issued.key, tmp_path / "key.pem")
    return Issued(tmp_path / "cert.pem", tmp_path / "key.pem")


def configured(tmp_path: Path, authority: Authority, served: Issued, more: str = "") -> list[str]:
    """Return the arguments of a node with a TLS listener and a Unix socket as well."""
    path = tmp_path / "rabbitmq.conf"
    path.write_text(
        f"ssl_options.certfile = {served.cert}\nssl_options.keyfile = {served.key}\n"
        f"ssl_options.cacertfile = {authority.cert}\n{more}"
    )
    unix = tmp_path / "amqp.sock"
    return [
        "--config", str(path), "--listen", "amqps://127.0.0.1:0", "--listen", f"unix://{unix}"
    ]  # fmt: skip


def tls_port(node: BrokerUnderTest) -> int:
    assert node.data is not None
    listeners = ask(node.data, "status", {}, 10.0)["listeners"]
    (found,) = [each for each in listeners if each.startswith("amqps://")]
    return int(found.rpartition(":")[2])


def round_trip(channel: pika.adapters.blocking_connection.BlockingChannel, body: bytes) -> bytes:
    channel.queue_declare("tls", exclusive=True)
    channel.confirm_delivery()
    channel.basic_publish("", "tls", body)
    _, _, found = channel.basic_get("tls", auto_ack=True)
    return found


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_pika_speaks_tls(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued, loop: str
) -> None:
    node = own_leveret(*configured(tmp_path, authority, served), LEVERET_LOOP=loop)
    options = pika.SSLOptions(authority.client(), "localhost")
    parameters = pika.ConnectionParameters("127.0.0.1", tls_port(node), ssl_options=options)
    with pika.BlockingConnection(parameters) as connection:
        for size in (0, 5, 200_000, 2_000_000):
            body = os.urandom(size)
            channel = connection.channel()
            assert round_trip(channel, body) == body
            channel.queue_delete("tls")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_aio_pika_speaks_tls_and_logs_in_by_its_certificate(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued, loop: str
) -> None:
    more = (
        "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
        "auth_mechanisms.1 = EXTERNAL\nssl_cert_login_from = common_name\n"
    )
    node = own_leveret(*configured(tmp_path, authority, served, more), LEVERET_LOOP=loop)
    node.control("add_user", "alice", "secret")
    node.control("set_permissions", "alice", ".*", ".*", ".*")
    issued = authority.issue("alice")
    url = (
        f"amqps://localhost:{tls_port(node)}/?auth=external&cafile={authority.cert}"
        f"&certfile={issued.cert}&keyfile={issued.key}"
    )

    columns = ("user", "auth_mechanism", "ssl", "peer_cert_subject")

    async def work() -> list[bytes]:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("", exclusive=True)
            for number in range(500):
                body = b"%d" % number
                await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
            bodies = [(await queue.get(no_ack=True)).body for _ in range(500)]
            listed = await asyncio.to_thread(node.control, "list_connections", *columns)
            assert listed.splitlines()[-1] == "alice\tEXTERNAL\ttrue\tCN=alice,O=Test"
            return bodies

    assert asyncio.run(work()) == [b"%d" % number for number in range(500)]


def test_openssl_reads_the_certificate_and_the_protocol(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued
) -> None:
    node = own_leveret(*configured(tmp_path, authority, served))
    done = subprocess.run(
        [
            "openssl", "s_client", "-connect", f"127.0.0.1:{tls_port(node)}", "-CAfile",
            str(authority.cert), "-verify_return_error", "-verify_hostname", "localhost", "-quiet",
        ],
        input=b"AMQP\0\0\x09\x02", capture_output=True, timeout=20, check=False,
    )  # fmt: skip

    assert b"AMQP\0\0\x09\x01" in done.stdout, done.stderr


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_proxy_tells_the_client_before_tls(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued, loop: str
) -> None:
    more = "proxy_protocol = true\nloopback_users = none\n"
    node = own_leveret(*configured(tmp_path, authority, served, more), LEVERET_LOOP=loop)
    for step in (1, 1_000):
        with socket.create_connection(("127.0.0.1", tls_port(node)), 10) as below:
            header = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 5671\r\n"
            for at in range(0, len(header), step):
                below.sendall(header[at : at + step])
            with authority.client().wrap_socket(below, server_hostname="localhost") as client:
                client.sendall(b"AMQP\0\0\x09\x01")
                assert client.recv(3) == b"\x01\0\0"
    assert node.log is not None
    name = '"203.0.113.7:4711 -> 10.0.0.1:5671"'
    wait_until(lambda: node.log.read_text().count(f"connection closed name={name}") == 2)


def test_perf_measures_over_tls(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued
) -> None:
    node = own_leveret(*configured(tmp_path, authority, served))
    command = [leveret_program(), "perf", "-h", f"amqps://127.0.0.1:{tls_port(node)}", "-C", "500"]
    done = ended([*command, "--json", "-"], tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def certificate_of(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_a_hang_up_signal_reads_the_certificates_again(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued
) -> None:
    node = own_leveret(*configured(tmp_path, authority, served))
    assert node.pid is not None
    assert node.log is not None
    port = tls_port(node)
    before = certificate_of(port)
    options = pika.SSLOptions(authority.client(), "localhost")
    parameters = pika.ConnectionParameters("127.0.0.1", port, ssl_options=options)
    with pika.BlockingConnection(parameters) as connection:
        served.key.write_text("no key")
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: "certificates not reloaded" in node.log.read_text())
        assert certificate_of(port) == before

        renewed = authority.issue("localhost")
        shutil.copy(renewed.cert, served.cert)
        shutil.copy(renewed.key, served.key)
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: "certificates reloaded" in node.log.read_text())
        assert certificate_of(port) != before
        assert round_trip(connection.channel(), b"still here") == b"still here"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_unix_socket_serves_and_goes_with_the_broker(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued, loop: str
) -> None:
    node = own_leveret(*configured(tmp_path, authority, served), LEVERET_LOOP=loop)
    path = tmp_path / "amqp.sock"
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"AMQP\0\0\x09\x01")
        assert client.recv(3) == b"\x01\0\0"
    assert node.log is not None
    process = f"unix:uid={os.getuid()},pid={os.getpid()}#1 -> unix:{path}"
    wait_until(lambda: f'connection closed name="{process}"' in node.log.read_text())

    assert node.process is not None
    node.process.terminate()
    node.process.wait(20)
    assert not path.exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda served: served.cert.unlink(), "cannot read {cert}: No such file or directory"),
        (lambda served: served.cert.write_text(""), "{cert} holds no certificate in PEM"),
        (lambda served: served.key.write_text(""), "key {key} cannot be used: "),
        (
            lambda served: shutil.copy(served.key.with_name("other.key"), served.key),
            "key {key} does not belong to certificate {cert}",
        ),
    ],
)
def test_certificates_that_cannot_be_used_end_the_start(
    tmp_path: Path,
    authority: Authority,
    served: Issued,
    damage: Callable[[Issued], object],
    said: str,
) -> None:
    shutil.copy(authority.issue("other").key, tmp_path / "other.key")
    damage(served)
    done = ended([leveret_program(), "serve", *configured(tmp_path, authority, served)], tmp_path)

    assert done.returncode == os.EX_CONFIG
    assert done.stdout == ""
    assert done.stderr.startswith("leveret: " + said.format(cert=served.cert, key=served.key))
    assert done.stderr.count("\n") == 1


def test_a_password_of_a_key_is_nowhere_to_be_seen(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority
) -> None:
    issued = authority.issue("localhost", password="canary-5")
    more = "ssl_options.password = canary-5\n"
    node = own_leveret(*configured(tmp_path, authority, issued, more), "--log-level", "debug")
    certificate_of(tls_port(node))
    (tmp_path / "rabbitmq.conf").write_text(more)
    assert node.data is not None
    assert node.log is not None

    assert "canary" not in node.log.read_text()
    assert "canary" not in json.dumps(ask(node.data, "status", {}, 10.0))
    assert "canary" not in "".join(
        Path(f"/proc/{node.pid}/{name}").read_text() for name in ("cmdline", "environ")
    )


def test_checks_know_listeners_with_tls_and_the_dates_of_their_certificates(
    own_leveret: OwnLeveret, tmp_path: Path, authority: Authority, served: Issued
) -> None:
    node = own_leveret(*configured(tmp_path, authority, served))
    port = tls_port(node)
    check = "check_certificate_expiration"

    listeners = node.control("listeners", "-q")
    assert f"port: {port}, protocol: amqp/ssl, purpose: AMQP 0-9-1 over TLS" in listeners
    assert f"Interface: {tmp_path / 'amqp.sock'}, port: 0, protocol: amqp/unix" in listeners
    assert node.control("check_protocol_listener", "amqps")
    assert "Successfully connected" in node.control("check_port_connectivity")
    within_a_day = node.control(check, "-q", "--within", "1", "--unit", "days")
    assert within_a_day == "No certificates are expiring within 1 day.\n"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        node.control(check, "--formatter", "json")
    assert caught.value.returncode == 69
    (expired,) = json.loads(caught.value.stderr)["expired"]
    assert (expired["port"], set(expired["expires"])) == (
        port,
        {str(served.cert), str(authority.cert)},
    )
    served.cert.write_text("no certificate")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        node.control(check)
    assert caught.value.stderr.startswith("Error:\ncertificates cannot be read")
