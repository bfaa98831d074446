"""Certificates of clients: which are trusted, what the log says of others, and the users of SASL EXTERNAL.

Tests: broker/connection/open_counts.py
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conformance.raw import Connection, Event
from leveret.management.node_admin import NodeAdmin
from leveret.management.verbs.users import UserAdmin
from leveret.server import Address, Broker, Config
from rigs.certificates import Authority, Issued
from rigs.waiting import eventually

REFUSED = (
    ssl.SSLError,
    ConnectionError,
    AssertionError,
)  # the last: the stream ends, without an alert
MECHANISMS = ("PLAIN", "EXTERNAL")
LOGIN_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. "
    "For details see the broker logfile."
)


@asynccontextmanager
async def verifying(
    config: Callable[..., Config], authority: Authority, **more: Any
) -> AsyncIterator[Broker]:
    settings = {"tls_ca_file": authority.cert, "tls_verify": True, "auth_mechanisms": MECHANISMS}
    async with Broker(config(**(settings | more))) as broker:
        yield broker


async def dialled(broker: Broker, context: ssl.SSLContext, **login: Any) -> Event:
    """Log in; return the broker's last word."""

    def work() -> Event:
        connection = Connection(tuple(broker.addresses[0]), context)
        try:
            return connection.open(**login)
        finally:
            connection.drop()

    return await asyncio.to_thread(work)


async def external(broker: Broker, authority: Authority, issued: Issued | None) -> Event:
    return await dialled(broker, authority.client(issued), mechanism="EXTERNAL", response="")


async def add_user(broker: Broker, name: str) -> None:
    users = UserAdmin(broker.node)
    await users.add_user(name, "never used")
    await users.set_permissions("/", name, ".*", ".*", ".*")


async def refusal(broker: Broker, caplog: pytest.LogCaptureFixture) -> str:
    await eventually(lambda: not broker.node.sockets.accepted)
    found = re.findall(r"connection refused .*reason=(.*)", caplog.text)
    assert len(found) == 1, caplog.text
    return str(found[0])


async def test_a_trusted_client_is_let_in(
    tls_config: Callable[..., Config], authority: Authority
) -> None:
    async with verifying(tls_config, authority, tls_require_certificate=True) as broker:
        for versions in ({"maximum_version": ssl.TLSVersion.TLSv1_2}, {}):
            context = authority.client(authority.issue("alice"), **versions)
            assert (await dialled(broker, context)).name == "connection.open-ok"


@pytest.mark.parametrize(
    ("days", "is_foreign", "reason"),
    [
        (-1, False, '"TLS handshake failed: client certificate refused: certificate has expired"'),
        (
            2,
            True,
            '"TLS handshake failed: client certificate refused:'
            ' unable to get local issuer certificate"',
        ),
    ],
)
async def test_expired_and_foreign_certificates_are_refused_with_the_reason(
    tls_config: Callable[..., Config],
    authority: Authority,
    foreign: Authority,
    caplog: pytest.LogCaptureFixture,
    days: int,
    is_foreign: bool,
    reason: str,
) -> None:
    issued = (foreign if is_foreign else authority).issue("mallory", days=days)
    async with verifying(tls_config, authority) as broker:
        with pytest.raises(REFUSED):
            raise ConnectionError(await dialled(broker, authority.client(issued)))

        assert await refusal(broker, caplog) == reason


async def test_a_client_without_a_certificate_is_refused_if_one_is_required(
    tls_config: Callable[..., Config], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with verifying(tls_config, authority, tls_require_certificate=True) as broker:
        with pytest.raises(REFUSED):
            raise ConnectionError(await dialled(broker, authority.client()))
        reason = '"TLS handshake failed: the client has no certificate"'
        assert await refusal(broker, caplog) == reason
    async with verifying(tls_config, authority) as broker:
        assert (await dialled(broker, authority.client())).name == "connection.open-ok"


@pytest.mark.parametrize(("depth", "is_let_in"), [(None, True), (1, True), (0, False)])
async def test_a_chain_may_be_as_deep_as_is_allowed(
    tls_config: Callable[..., Config],
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
    depth: int | None,
    is_let_in: bool,
) -> None:
    between = Authority(tmp_path_factory.mktemp("between"), "Between", parent=authority)
    async with verifying(tls_config, authority, tls_depth=depth) as broker:
        context = authority.client(between.issue("alice"))
        if is_let_in:
            assert (await dialled(broker, context)).name == "connection.open-ok"
            return
        with pytest.raises(REFUSED):
            raise ConnectionError(await dialled(broker, context))
        assert "1 intermediate certificates, allowed are 0" in await refusal(broker, caplog)


# SASL EXTERNAL.


@pytest.mark.parametrize(
    ("subject", "names", "settings", "user"),
    [
        ("/O=Client/CN=alice", "", {}, "CN=alice,O=Client"),
        ("/O=A, B/CN=ä", "", {}, r"CN=\C3\A4,O=A\, B"),
        ("/O=Client/CN=alice", "", {"tls_login_from": "common_name"}, "alice"),
        ("/CN=a/CN=b", "", {"tls_login_from": "common_name"}, "a,b"),
        ("/O=C", "DNS:x,DNS:y", {"tls_login_from": "subject_alternative_name"}, "x"),
        (
            "/O=C",
            "DNS:x,email:a@b,DNS:y",
            {"tls_login_from": "subject_alternative_name", "tls_login_san_index": 1},
            "y",
        ),
        (
            "/O=C",
            "DNS:x,email:a@b",
            {"tls_login_from": "subject_alternative_name", "tls_login_san_type": "email"},
            "a@b",
        ),
        (
            "/O=C",
            "IP:10.0.0.1",
            {"tls_login_from": "subject_alternative_name", "tls_login_san_type": "ip"},
            "10.0.0.1",
        ),
        (
            "/O=C",
            "URI:urn:x",
            {"tls_login_from": "subject_alternative_name", "tls_login_san_type": "uri"},
            "urn:x",
        ),
    ],
)
async def test_external_logs_in_the_user_of_the_certificate(
    tls_config: Callable[..., Config],
    authority: Authority,
    subject: str,
    names: str,
    settings: dict[str, Any],
    user: str,
) -> None:
    extensions = f"subjectAltName={names}" if names else "keyUsage=digitalSignature"
    issued = authority.issue("", extensions, subject=subject)
    async with verifying(tls_config, authority, **settings) as broker:
        assert (await external(broker, authority, issued)).reply_text == LOGIN_REFUSED
        await add_user(broker, user)
        assert (await external(broker, authority, issued)).name == "connection.open-ok"


@pytest.mark.parametrize(
    ("has_certificate", "settings", "reason"),
    [
        (False, {}, '"connection peer presented no TLS (x.509) certificate"'),
        (True, {}, "\"user 'CN=nobody,O=Test' - invalid credentials\""),
        (
            True,
            {"tls_login_from": "subject_alternative_name", "tls_login_san_type": "email"},
            '"no name found: the certificate has no subject_alternative_name"',
        ),
        (
            True,
            {"tls_login_from": "subject_alternative_name", "tls_login_san_index": 9},
            '"no name found: the certificate has no subject_alternative_name"',
        ),
    ],
)
async def test_external_is_refused_with_the_reason_in_the_log_only(
    tls_config: Callable[..., Config],
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    has_certificate: bool,
    settings: dict[str, Any],
    reason: str,
) -> None:
    issued = authority.issue("nobody") if has_certificate else None
    async with verifying(tls_config, authority, **settings) as broker:
        reply = await external(broker, authority, issued)

        assert (reply.name, reply.reply_code) == ("connection.close", 403)
        assert reply.reply_text == LOGIN_REFUSED
        assert await refusal(broker, caplog) == reason


async def test_names_in_certificates_cannot_forge_lines_of_the_log(
    tls_config: Callable[..., Config], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    issued = authority.issue("", subject="/CN=<b>\x1b[31m.*\n..\x07")
    async with verifying(tls_config, authority, tls_login_from="common_name") as broker:
        assert (await external(broker, authority, issued)).reply_code == 403
        assert r"user '<b>\x1b[31m.*\n..\x07' - invalid credentials" in await refusal(
            broker, caplog
        )
    assert "\x1b" not in caplog.text
    assert not [each for each in caplog.records if "\n" in each.getMessage()]


async def test_external_is_offered_where_there_is_tls(
    tls_config: Callable[..., Config], authority: Authority
) -> None:
    listen = (Address("127.0.0.1", 0, "amqps"), Address("127.0.0.1", 0))
    async with verifying(tls_config, authority, listen=listen) as broker:

        def mechanisms(number: int, context: ssl.SSLContext | None) -> str:
            connection = Connection(tuple(broker.addresses[number]), context)
            connection.send_bytes(b"AMQP\0\0\x09\x01")
            start = connection.read()
            connection.drop()
            return str(start.mechanisms)

        with_tls = await asyncio.to_thread(mechanisms, 0, authority.client())
        without = await asyncio.to_thread(mechanisms, 1, None)

    assert (with_tls, without) == ("PLAIN EXTERNAL", "PLAIN")  # RabbitMQ's order


async def test_a_connection_shows_its_tls(
    tls_config: Callable[..., Config], authority: Authority
) -> None:
    issued = authority.issue("alice", subject="/O=Client/CN=alice")
    async with verifying(tls_config, authority) as broker:
        found = []
        for versions in ({"maximum_version": ssl.TLSVersion.TLSv1_2}, {}):
            context = authority.client(issued, **versions)
            connection = await asyncio.to_thread(Connection, tuple(broker.addresses[0]), context)
            await asyncio.to_thread(connection.open)
            found += await NodeAdmin(broker).connections.list_connections()
            connection.drop()
            await eventually(lambda: not broker.node.sockets.accepted)

    assert [row["ssl"] for row in found] == [True, True]
    assert [row["ssl_protocol"] for row in found] == ["tlsv1.2", "tlsv1.3"]
    assert [row["ssl_key_exchange"] for row in found] == ["ecdhe_ecdsa", "any"]
    assert {row["ssl_cipher"] for row in found} == {"aes_256_gcm"}
    assert {row["ssl_hash"] for row in found} == {"aead"}
    assert {row["peer_cert_subject"] for row in found} == {"CN=alice,O=Client"}
    assert {row["peer_cert_issuer"] for row in found} == {"CN=Test authority"}
    for row in found:
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ - \d{4}-.*Z", row["peer_cert_validity"]
        )
