"""Requests to etcd's JSON gateway, and its answers: forms without I/O.

The gateway (``/v3/...``, in etcd since 3.4) takes etcd's messages as JSON: bytes are base64, 64-bit numbers are
strings, and fields that are zero are left out of answers. An error is an object with the code of gRPC and a text.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from leveret.etcd.errors import (
    ClusterError,
    CompactedError,
    GatewayError,
    LeaseGoneError,
    LoginRefusedError,
    TooLargeError,
    UnavailableError,
)
from leveret.etcd.key_values import Row, Swap

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
AUTHENTICATE: Final = "/v3/auth/authenticate"

KEY_BYTES_MAX: Final = 4 * 1024
VALUE_BYTES_MAX: Final = 512 * 1024  # as base64 below the 1.5 MiB that etcd takes by default
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


class OldTokenError(ClusterError):
    """The token of the login is not valid any more: log in again. The request has had no effect."""


class NoAnswerError(ClusterError):
    """A server has failed to carry a request out; a write may have taken effect."""


# Errors by gRPC's code (None: any) and words of the text.
_LOGIN: Final = "; set user and password as etcd has them"
_KINDS: Final[tuple[tuple[int | None, str, type[ClusterError], str], ...]] = (
    (16, "", OldTokenError, ""),
    (None, "revision of auth store is old", OldTokenError, ""),
    (None, "user name is empty", LoginRefusedError, _LOGIN),
    (None, "authentication failed", LoginRefusedError, _LOGIN),
    (None, "authentication is not enabled", LoginRefusedError, _LOGIN),
    (7, "", LoginRefusedError, "; grant the user's role read and write of the prefix"),
    (8, "", UnavailableError, "; compact and defragment it, or raise its quota"),
    (11, "compacted", CompactedError, ""),
    (5, "requested lease not found", LeaseGoneError, ""),
    (3, "too many operations", TooLargeError, "; raise its --max-txn-ops to 128"),
    (None, "too large", TooLargeError, "; raise its --max-request-bytes"),
)
_UNKNOWN_OUTCOMES: Final = frozenset(
    {1, 2, 4, 10, 13, 14, 15}
)  # codes after which a write may be made


class Header(msgspec.Struct):
    """The part of all answers."""

    revision: int = 0


class KeyValue(msgspec.Struct):
    """A key as etcd answers it."""

    key: bytes
    mod_revision: int
    value: bytes = b""
    lease: int = 0


class Range(msgspec.Struct):
    """The answer to a read."""

    header: Header
    kvs: list[KeyValue] = []
    more: bool = False


class TxnPart(msgspec.Struct):
    """The answer to one operation of a transaction."""

    response_range: Range | None = None
    response_txn: TxnResponse | None = None


class TxnResponse(msgspec.Struct):
    """The answer to a transaction, or to one within another, which has no header of its own."""

    header: Header = msgspec.field(default_factory=Header)
    succeeded: bool = False
    responses: list[TxnPart] = []


class _Login(msgspec.Struct):
    token: str


class _Failure(msgspec.Struct):
    code: int
    message: str = ""
    error: str = ""


_ranges: Final = msgspec.json.Decoder(Range, strict=False)
txns: Final = msgspec.json.Decoder(TxnResponse, strict=False)
_logins: Final = msgspec.json.Decoder(_Login, strict=False)
_failures: Final = msgspec.json.Decoder(_Failure, strict=False)
_encode: Final = msgspec.json.encode


# Requests.


def read_request(key: str) -> bytes:
    """Return the body of a linearizable read of one key."""
    return _encode({"key": key_bytes(key)})


def scan_request(prefix: str, after: str | None, limit: int, revision: int) -> bytes:
    """Return the body of a read of the keys with a prefix, in order.

    Args:
        prefix: of the keys.
        after: only keys behind this one.
        limit: of the number of rows.
        revision: of the whole store that is read; 0: the newest.
    """
    first = key_bytes(prefix) if after is None else key_bytes(after) + b"\0"
    wanted = {
        "key": first,
        "range_end": prefix_end(key_bytes(prefix)),
        "limit": limit,
        "revision": revision,
    }
    return _encode(wanted)


def swap_request(key: str, value: bytes | None, revision: int) -> bytes:
    """Return the body of a compare-and-swap; ``value`` None deletes.

    Raises:
        TooLargeError: key or value are above the limits.
    """
    return _encode(swap_txn(key, value, revision))


def swap_txn(key: str, value: bytes | None, revision: int) -> dict[str, Any]:
    """Return a compare-and-swap as a transaction; errors as ``swap_request``."""
    name = key_bytes(key)
    if value is not None and len(value) > VALUE_BYTES_MAX:
        raise TooLargeError(f"value of {len(value)} bytes for {key!r}, limit {VALUE_BYTES_MAX}")
    if value is None:
        write: dict[str, Any] = {"request_delete_range": {"key": name}}
    else:
        write = {"request_put": {"key": name, "value": value}}
    compare = {"target": "MOD", "key": name, "mod_revision": revision, "result": "EQUAL"}
    read = {"request_range": {"key": name}}
    return {"compare": [compare], "success": [write], "failure": [read]}


def login_request(user: str, password: str) -> bytes:
    """Return the body of a login."""
    return _encode({"name": user, "password": password})


# Answers.


def read_answer(body: bytes) -> Row | None:
    """Return the row that was asked for."""
    rows = rows_of(decoded(_ranges, body).kvs)
    return rows[0] if rows else None


def scan_answer(body: bytes) -> tuple[list[Row], bool, int]:
    """Return the rows, whether there are more, and the revision of the store."""
    answer = decoded(_ranges, body)
    return rows_of(answer.kvs), answer.more, answer.header.revision


def swap_answer(key: str, value: bytes | None, body: bytes) -> Swap:
    """Return the outcome of a compare-and-swap."""
    answer = decoded(txns, body)
    return swap_of(key, value, answer, answer.header.revision)


def swap_of(key: str, value: bytes | None, answer: TxnResponse, revision: int) -> Swap:
    """Return the outcome of a compare-and-swap, alone or within a transaction that was made at this revision."""
    if answer.succeeded:
        return Swap(True, None if value is None else Row(key, value, revision))
    found = [each.response_range for each in answer.responses]
    if len(found) != 1 or found[0] is None:
        raise GatewayError(f"etcd has not said what is under {key!r}")
    rows = rows_of(found[0].kvs)
    return Swap(False, rows[0] if rows else None)


def login_answer(body: bytes) -> str:
    """Return the token."""
    token: str = decoded(_logins, body).token
    return token


def failure(status: int, body: bytes, endpoint: str) -> ClusterError:
    """Return the error that an answer with a status other than 200 is.

    Returns:
        A ``ClusterError`` for the user; ``OldTokenError`` or ``NoAnswerError``, which are for the client.
    """
    try:
        found = _failures.decode(body)
    except ValueError:  # msgspec's errors are
        return _foreign_failure(status, body, endpoint)
    text = found.message or found.error
    for code, words, kind, remedy in _KINDS:
        if code in (None, found.code) and words in text:
            return kind(f"etcd at {endpoint}: {text}{remedy}")
    kind = NoAnswerError if found.code in _UNKNOWN_OUTCOMES else GatewayError
    return kind(f"etcd at {endpoint}: {text}")


def _foreign_failure(status: int, body: bytes, endpoint: str) -> ClusterError:
    """Return the error for an answer that is none of the gateway's: of a proxy, or of another server."""
    if status >= 500:
        return NoAnswerError(f"{endpoint} answered with status {status}")
    return GatewayError(
        f"{endpoint} answered with status {status} and {body[:80]!r}: it is no etcd 3.4 or newer, or has its JSON "
        "gateway switched off (--enable-grpc-gateway)"
    )


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Return an answer decoded; GatewayError: it is none of etcd's."""
    try:
        return decoder.decode(body)
    except ValueError as error:
        raise GatewayError(f"etcd's answer cannot be read: {error}: {body[:200]!r}") from error


def rows_of(found: list[KeyValue]) -> list[Row]:
    """Return keys and values as rows."""
    return [Row(key_text(each.key), each.value, each.mod_revision, each.lease) for each in found]


def key_text(key: bytes) -> str:
    """Return a key as text."""
    return key.decode("utf-8", "surrogateescape")


def key_bytes(key: str) -> bytes:
    """Return a key as bytes.

    Raises:
        TooLargeError: the key is too long.
        GatewayError: the key is empty.
    """
    name = key.encode("utf-8", "surrogateescape")
    if len(name) > KEY_BYTES_MAX:
        raise TooLargeError(f"key of {len(name)} bytes, limit {KEY_BYTES_MAX}: {key[:80]!r}...")
    if not name:
        raise GatewayError("a key in etcd cannot be empty")
    return name


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key behind all that have the prefix."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else b"\0"
