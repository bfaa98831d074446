"""Certificates in files: what is refused at the start, and what happens when the files change.

Tests: broker/connection/layers/certificate.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.connection.layers.certificate import dates_in, dates_of
from leveret.broker.connection.layers.credentials import CHECK_S, Credentials, ciphers
from leveret.core.errors import ConfigError
from leveret.server import Address, Broker, Config
from rigs.certificates import Authority, Issued
from rigs.waiting import eventually

Make = Callable[..., Config]


def refused(config: Config) -> str:
    with pytest.raises(ConfigError) as caught:
        Credentials(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_not_there_is_named(tls_config: Make, tmp_path: Path) -> None:
    missing = tmp_path / "none.pem"
    told = f"cannot read {missing}: No such file or directory"

    assert refused(tls_config(tls_cert_file=missing)) == told
    assert refused(tls_config(tls_key_file=missing)) == told
    assert refused(tls_config(tls_ca_file=missing)) == told


def test_a_file_that_holds_something_else_is_named(
    tls_config: Make, served: Issued, tmp_path: Path
) -> None:
    text, damaged = tmp_path / "text", tmp_path / "damaged.pem"
    text.write_text("hello")
    lines = served.cert.read_text().splitlines()
    damaged.write_text("\n".join([lines[0], *lines[3:]]))

    assert refused(tls_config(tls_cert_file=text)) == f"{text} holds no certificate in PEM"
    assert refused(tls_config(tls_ca_file=text)) == f"{text} holds no certificate in PEM"
    assert refused(tls_config(tls_cert_file=damaged)).startswith(f"{damaged} ")
    no_key = "cannot be used: it holds no private key in PEM"
    assert refused(tls_config(tls_key_file=text)) == f"key {text} {no_key}"
    alone = refused(tls_config(tls_key_file=None))
    assert alone == f"key {served.cert} {no_key}; the setting of the key can name another file"
    damaged.write_text("\n".join([*served.key.read_text().splitlines()[:3], "-----END"]))
    assert (
        refused(tls_config(tls_key_file=damaged)) == f"key {damaged} cannot be used: it is damaged"
    )


def test_a_key_of_another_certificate_is_refused(
    tls_config: Make, authority: Authority, served: Issued
) -> None:
    other = authority.issue("other")

    told = f"key {other.key} does not belong to certificate {served.cert}"
    assert refused(tls_config(tls_key_file=other.key)) == told


def test_an_encrypted_key_needs_its_password(tls_config: Make, authority: Authority) -> None:
    issued = authority.issue("localhost", password="canary-7")
    files = {"tls_cert_file": issued.cert, "tls_key_file": issued.key}

    told = f"key {issued.key} is encrypted, and there is no tls_key_password"
    assert refused(tls_config(**files)) == told
    told = f"key {issued.key} cannot be decrypted with tls_key_password"
    assert refused(tls_config(**files, tls_key_password="canary-8")) == told
    Credentials(tls_config(**files, tls_key_password="canary-7"))


def test_a_key_may_stand_in_the_file_of_the_certificate(
    tls_config: Make, served: Issued, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_text(served.cert.read_text() + served.key.read_text())

    Credentials(tls_config(tls_cert_file=both, tls_key_file=None))


def test_ciphers_and_versions_are_as_they_were_set(tls_config: Make) -> None:
    old = Credentials(tls_config(tls_ciphers=("ECDHE-ECDSA-AES128-GCM-SHA256",))).context
    new = Credentials(tls_config(tls_versions=("tlsv1.3",))).context
    first = Credentials(tls_config()).context

    assert old.maximum_version == ssl.TLSVersion.TLSv1_2
    names = {each["name"] for each in old.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert new.minimum_version == new.maximum_version == ssl.TLSVersion.TLSv1_3
    assert first.minimum_version == ssl.TLSVersion.TLSv1_2
    assert first.maximum_version == ssl.TLSVersion.TLSv1_3


def test_ciphers_that_cannot_be_set_are_refused(tls_config: Make) -> None:
    said = refused(tls_config(tls_ciphers=("ROT13",)))
    assert said == "tls_ciphers has ROT13, which OpenSSL does not have"
    said = refused(tls_config(tls_ciphers=("TLS_AES_256_GCM_SHA384",)))
    assert said == "tls_ciphers has not TLS_AES_128_GCM_SHA256: those of TLS 1.3 go together"
    only_new = {"tls_versions": ("tlsv1.3",), "tls_ciphers": ("ECDHE-RSA-AES128-GCM-SHA256",)}
    assert "none of TLS 1.3" in refused(tls_config(**only_new))
    newest = tuple(name for name in ciphers() if name.startswith("TLS_"))
    context = Credentials(tls_config(tls_ciphers=newest)).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_a_broker_does_not_start_without_its_certificate(tls_config: Make, tmp_path: Path) -> None:
    async def start() -> None:
        async with Broker(tls_config(tls_cert_file=tmp_path / "none")):
            pass

    with pytest.raises(ConfigError, match="cannot read"):
        asyncio.run(start())


async def test_a_certificate_without_a_listener_is_told(
    tls_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(tls_config(listen=(Address("127.0.0.1", 0),))) as broker:
        assert broker.credentials is None
        assert broker.reload_certificates()

    assert "tls_cert_file has no effect: there is no TLS listener" in caplog.text


# Dates.


def test_the_dates_of_all_certificates_of_a_file_are_found(
    authority: Authority, tmp_path: Path
) -> None:
    issued, expired = authority.issue("a"), authority.issue("b", days=-1)
    both = tmp_path / "both.pem"
    both.write_text(f"some words\n{issued.cert.read_text()}{expired.cert.read_text()}")
    now_s = time.time()

    first, second = dates_in(both)
    assert first.not_before_s <= now_s < first.not_after_s
    assert abs(first.not_after_s - now_s - 2 * 86_400) < 300
    assert second.not_after_s < now_s


def test_dates_are_those_that_openssl_sees(served: Issued) -> None:
    decoded = ssl._ssl._test_decode_cert(str(served.cert))  # type: ignore[attr-defined]
    (dates,) = dates_in(served.cert)

    assert ssl.cert_time_to_seconds(decoded["notBefore"]) == dates.not_before_s
    assert ssl.cert_time_to_seconds(decoded["notAfter"]) == dates.not_after_s


@given(st.data())
def test_damaged_certificates_are_told(data: st.DataObject) -> None:
    der = ssl.PEM_cert_to_DER_cert(PEM)
    at = data.draw(st.integers(0, len(der) - 1))
    damaged = data.draw(
        st.sampled_from([der[:at], der[:at] + data.draw(st.binary(max_size=5)) + der[at + 1 :]])
    )
    with contextlib.suppress(ValueError):
        dates_of(damaged)


PEM = """-----BEGIN CERTIFICATE-----
MIIBlDCCATmgAwIBAgIUVaz387tB+13UD9Z1R6yBTNjjJj4wCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHVGVzdCBDQTAeFw0yNjExMjMxNDU0NTRaFw0yNjExMjIxNDU0
NTRaMCExDzANBgNVBAoMBkNsaWVudDEOMAwGA1UEAwwFYWxpY2UwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAARNWIfdUiUOXMeYEzQ2ITjVl2IIRKkkZlG/xrRxJGEL
+WUUGtjVBoZ3ZeNB5KuaF9sYbzXG0QCHvWlNlX3Yvgvqo14wXDAaBgNVHREEEzAR
gglsb2NhbGhvc3SHBH8AAAEwHQYDVR0OBBYEFAanXEsdxeS0sZ/iTPXvYduzxm12
MB8GA1UdIwQYMBaAFAqQuL9eUYGKEbszF/TmSZ26LUY/MAoGCCqGSM49BAMCA0kA
MEYCIQDXpX8v4Q42e1WnzDXrfvUbDJb3Gk1dY7vMXHcBURcm4gIhAMJnmM7VLpAa
YItBFswkZpJSzpEeWAiVkvrL0T6RW2Eo
-----END CERTIFICATE-----
"""


# Reloading.


@pytest.fixture
def place(served: Issued, tmp_path: Path) -> Issued:
    """The broker's certificate and key, in files of the test's own."""
    return copied(served, Issued(tmp_path / "cert.pem", tmp_path / "key.pem"))


def copied(source: Issued, target: Issued) -> Issued:
    for before, after in zip(source.pair, target.pair, strict=True):
        shutil.copy(before, after)
        number = time.time_ns()
        os.utime(after, ns=(number, number))
    return target


def of(place: Issued) -> dict[str, Any]:
    return {"tls_cert_file": place.cert, "tls_key_file": place.key}


async def serial_of(broker: Broker, authority: Authority) -> str:
    """Connect; return the number of the certificate that the broker shows."""
    _, writer = await asyncio.open_connection(
        *broker.addresses[0], ssl=authority.client(), server_hostname="localhost"
    )
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["serialNumber"])


async def test_new_files_are_used_when_the_broker_is_told(
    tls_config: Make, authority: Authority, place: Issued
) -> None:
    async with Broker(tls_config(**of(place))) as broker:
        before = await serial_of(broker, authority)
        copied(authority.issue("localhost"), place)
        assert await serial_of(broker, authority) == before

        assert broker.reload_certificates()
        assert await serial_of(broker, authority) != before


async def test_files_that_cannot_be_used_leave_the_former_ones_in_use(
    tls_config: Make, authority: Authority, place: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(tls_config(**of(place))) as broker:
        before = await serial_of(broker, authority)
        place.cert.write_bytes(authority.issue("localhost").cert.read_bytes())  # not its key

        assert not broker.reload_certificates()
        assert "certificates not reloaded, the former ones stay in use" in caplog.text
        assert "does not belong to certificate" in caplog.text
        assert await serial_of(broker, authority) == before


def test_changed_files_are_used_by_themselves(
    tls_config: Make, authority: Authority, place: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = Credentials(tls_config(**of(place)))
    first = credentials.context
    credentials.reload_if_changed()
    assert credentials.context is first

    renewed = authority.issue("localhost")
    shutil.copy(renewed.cert, place.cert)
    credentials.reload_if_changed()  # the key may be on its way
    assert credentials.context is first
    copied(renewed, place)
    credentials.reload_if_changed()
    assert credentials.context is first
    credentials.reload_if_changed()
    assert credentials.context is not first
    second = credentials.context

    place.key.unlink()
    for _ in range(5):
        credentials.reload_if_changed()
    assert credentials.context is second
    assert caplog.text.count("certificates not reloaded") == 1


async def test_the_listener_looks_at_the_files(
    tls_config: Make, authority: Authority, place: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.broker.connection.listener.CHECK_S", 0.01)
    assert CHECK_S < 60
    async with Broker(tls_config(**of(place))) as broker:
        assert broker.credentials is not None
        first = broker.credentials.context
        copied(authority.issue("localhost"), place)
        await eventually(lambda: broker.credentials.context is not first)  # type: ignore[union-attr]
