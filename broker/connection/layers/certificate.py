"""Certificates: their names as RabbitMQ writes them, and the dates of those in files.

Python decodes the certificates of peers, and none of files; of a file's only the dates are needed, which stand in the
first few fields of their DER.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

PeerCertificate = Mapping[str, Any]
"""As ``ssl.SSLObject.getpeercert`` returns it."""

_PEM: Final = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE-----",
    re.DOTALL,
)
_SHORT: Final = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SAN_TYPES: Final = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}
SAN_TYPES: Final = tuple(_SAN_TYPES)

DISTINGUISHED_NAME: Final = "distinguished_name"
COMMON_NAME: Final = "common_name"
SUBJECT_ALTERNATIVE_NAME: Final = "subject_alternative_name"
LOGIN_NAMES: Final = (DISTINGUISHED_NAME, COMMON_NAME, SUBJECT_ALTERNATIVE_NAME)


def certificate_of(connection: ssl.SSLObject) -> PeerCertificate:
    """Return the client's certificate; empty: it has none, or was not asked for one."""
    found: PeerCertificate = connection.getpeercert() or {}
    return found


def distinguished_name(rdns: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return a name of ``getpeercert`` by RFC 4514, the last part first: ``CN=client,O=Example``.

    Source: ``rabbit_cert_info``.
    """
    parts = [
        "+".join(f"{_SHORT.get(key, key)}={_escaped(text)}" for key, text in rdn) for rdn in rdns
    ]
    return ",".join(reversed(parts))


def _escaped(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    shown = "".join(_octet(octet) for octet in data)
    if data[:1] in {b" ", b"#"}:
        shown = "\\" + shown
    if data[1:].endswith(b" "):
        shown = shown[:-1] + "\\ "
    return shown


def _octet(octet: int) -> str:
    if octet < 32 or octet >= 126:
        return f"\\{octet:02X}"
    return f"\\{octet:c}" if octet in b'"+,;<>\\' else chr(octet)


def login_name(
    certificate: PeerCertificate, kind: str, san_type: str, san_index: int
) -> str | None:
    """Return the user's name that a client's certificate stands for; None: it has no such name.

    Args:
        certificate: the client's.
        kind: one of ``LOGIN_NAMES``.
        san_type: which subject alternative names count, one of ``SAN_TYPES``.
        san_index: which of them, from 0.
    """
    if kind == DISTINGUISHED_NAME:
        return distinguished_name(certificate.get("subject", ()))
    if kind == COMMON_NAME:
        subject = certificate.get("subject", ())
        names = [text for rdn in subject for key, text in rdn if key == "commonName"]
        return ",".join(names) or None
    names = [
        text for key, text in certificate.get("subjectAltName", ()) if key == _SAN_TYPES[san_type]
    ]
    return names[san_index] if san_index < len(names) else None


def validity(certificate: PeerCertificate) -> str:
    """Return from when to when a certificate is valid: ``2026-01-01T00:00:00Z - 2027-01-01T00:00:00Z``."""
    return " - ".join(_iso(certificate[key]) for key in ("notBefore", "notAfter"))


def _iso(text: str) -> str:
    moment = datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# -- files ---------------------------------------------------------------------------------------


class Dates(NamedTuple):
    """When a certificate becomes valid and when it expires, in seconds since 1970."""

    not_before_s: float
    not_after_s: float


def dates_in(path: Path) -> list[Dates]:
    """Return the dates of all certificates of a PEM file, in the file's order.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no certificate, or a damaged one.
    """
    blocks = _PEM.findall(path.read_text("utf-8", "replace"))
    if not blocks:
        raise ValueError("holds no certificate in PEM")
    return [dates_of(_der(block)) for block in blocks]


def _der(block: str) -> bytes:
    lines = block.splitlines()
    plain = ["-----BEGIN CERTIFICATE-----", *lines[1:-1], "-----END CERTIFICATE-----"]
    return ssl.PEM_cert_to_DER_cert("\n".join(plain))


def dates_of(der: bytes) -> Dates:
    """Return the dates of a certificate; ValueError: the bytes are no certificate.

    Certificate and TBSCertificate are sequences. The latter begins with an optional version ``[0]``, the serial number,
    the algorithm and the issuer; the validity follows, a sequence of two times. Source: RFC 5280, 4.1.
    """
    _, at, _ = _element(der, 0, _SEQUENCE)
    _, at, _ = _element(der, at, _SEQUENCE)
    tag, _, end = _element(der, at)
    fields = 4 if tag == _VERSION else 3
    for _ in range(fields - 1):
        _, _, end = _element(der, end)
    _, at, _ = _element(der, end, _SEQUENCE)
    first, end = _time(der, at)
    return Dates(first, _time(der, end)[0])


_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def _element(der: bytes, at: int, tag: int | None = None) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the element at a place."""
    head = der[at : at + 2]
    if len(head) < 2 or (tag is not None and head[0] != tag):
        raise ValueError("damaged certificate")
    size, start = head[1], at + 2
    if size & 0x80:
        digits = der[start : start + (size & 0x7F)]
        size, start = int.from_bytes(digits, "big"), start + len(digits)
    if start + size > len(der):
        raise ValueError("damaged certificate")
    return head[0], start, start + size


def _time(der: bytes, at: int) -> tuple[float, int]:
    tag, start, end = _element(der, at)
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    text = der[start:end].decode("ascii", "replace")
    return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp(), end
