"""Transactions, leases and watches of etcd's JSON gateway: forms without I/O.

A watch is one request with an answer that does not end: a line of JSON for each piece of news. Its first line says
that it has begun. etcd never cuts the writes of one revision in two lines (it would with ``fragment``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from leveret.etcd.errors import CompactedError, GatewayError, TooLargeError
from leveret.etcd.gateway import (
    VALUE_BYTES_MAX,
    KeyValue,
    TxnPart,
    decoded,
    key_bytes,
    key_text,
    prefix_end,
    rows_of,
    swap_of,
    swap_txn,
    txns,
)
from leveret.etcd.key_values import (
    CompareAndSwap,
    Delete,
    Event,
    Operation,
    Outcome,
    Put,
    Read,
    Txn,
    TxnAnswer,
)

GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
REVOKE: Final = "/v3/lease/revoke"
WATCH: Final = "/v3/watch"

OPERATIONS_MAX: Final = (
    128  # etcd's --max-txn-ops: preconditions of a transaction, and its operations
)
EXCHANGE_MAX: Final = OPERATIONS_MAX - 1  # a transaction within another counts for one more
TXN_BYTES_MAX: Final = 1024 * 1024  # of keys and values; as base64 below etcd's 1.5 MiB


class _Lease(msgspec.Struct):
    id: int = msgspec.field(name="ID", default=0)
    ttl_s: int = msgspec.field(name="TTL", default=0)


class _KeptAlive(msgspec.Struct):
    result: _Lease


class _Event(msgspec.Struct):
    kv: KeyValue
    type: str = "PUT"


class _News(msgspec.Struct):
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[_Event] = []


class _Failed(msgspec.Struct):
    message: str = ""


class _Line(msgspec.Struct):
    result: _News | None = None
    error: _Failed | None = None


_leases: Final = msgspec.json.Decoder(_Lease, strict=False)
_kept_alive: Final = msgspec.json.Decoder(_KeptAlive, strict=False)
_lines: Final = msgspec.json.Decoder(_Line, strict=False)
_encode: Final = msgspec.json.encode


# Transactions.


def size_bytes(write: Put | Delete) -> int:
    """Return how much of ``TXN_BYTES_MAX`` a write takes, its precondition included."""
    value = len(write.value) if isinstance(write, Put) else 0
    return 3 * len(key_bytes(write.key)) + value + 192


def txn_request(txn: Txn) -> bytes:
    """Return the body of a transaction.

    Raises:
        TooLargeError: it has too many operations, or is too long for etcd.
    """
    writes = [_write(each) for each in txn.writes]
    if max(len(txn.expects), len(writes)) + 1 > OPERATIONS_MAX:
        raise TooLargeError(
            f"transaction of {len(txn.expects)} preconditions and {len(writes)} writes, limit {OPERATIONS_MAX - 1}"
        )
    size = sum(map(size_bytes, txn.writes))
    if size > TXN_BYTES_MAX:
        raise TooLargeError(f"transaction of {size} bytes, limit {TXN_BYTES_MAX}")
    prefix = key_bytes(txn.read)
    read = {"request_range": {"key": prefix, "range_end": prefix_end(prefix)}}
    keys = [key_bytes(each.key) for each in txn.expects]
    return _encode(
        {
            "compare": [
                {
                    "target": "MOD",
                    "key": key,
                    "mod_revision": each.revision,
                    "result": "EQUAL",
                }
                for key, each in zip(keys, txn.expects, strict=True)
            ],
            "success": [*writes, read],
            "failure": [
                read,
                *({"request_range": {"key": key, "keys_only": True}} for key in keys),
            ],
        }
    )


def _write(write: Put | Delete) -> dict[str, Any]:
    key = key_bytes(write.key)
    if isinstance(write, Delete):
        return {"request_delete_range": {"key": key}}
    if len(write.value) > VALUE_BYTES_MAX:
        raise TooLargeError(
            f"value of {len(write.value)} bytes for {write.key!r}, limit {VALUE_BYTES_MAX}"
        )
    return {"request_put": {"key": key, "value": write.value, "lease": write.lease}}


def txn_answer(txn: Txn, body: bytes) -> TxnAnswer:
    """Return the outcome of a transaction."""
    answer = decoded(txns, body)
    ranges = [each.response_range for each in answer.responses if each.response_range is not None]
    if len(ranges) != (1 if answer.succeeded else 1 + len(txn.expects)):
        raise GatewayError(f"etcd has not answered what was read: {body[:200]!r}")
    found = {}
    if not answer.succeeded:
        for each, read in zip(txn.expects, ranges[1:], strict=True):
            found[each.key] = read.kvs[0].mod_revision if read.kvs else 0
    return TxnAnswer(answer.succeeded, answer.header.revision, rows_of(ranges[0].kvs), found)


# Exchanges: operations that know nothing of each other, in one request.


def operation(wanted: Operation) -> dict[str, Any]:
    """Return an operation as a part of an exchange: a read, or a transaction of its own.

    Raises:
        TooLargeError: key or value are above the limits.
    """
    if isinstance(wanted, Read):
        return {"request_range": {"key": key_bytes(wanted.key)}}
    return {"request_txn": swap_txn(*wanted)}


def exchange_request(parts: Sequence[dict[str, Any]]) -> bytes:
    """Return the body of an exchange, of at most ``EXCHANGE_MAX`` operations on different keys."""
    return _encode({"success": parts})


def exchange_answer(operations: Sequence[Operation], body: bytes) -> list[Outcome]:
    """Return the outcome of each operation."""
    answer = decoded(txns, body)
    if len(answer.responses) != len(operations):
        raise GatewayError(f"etcd has not answered all operations: {body[:200]!r}")
    return [
        _outcome(wanted, part, answer.header.revision)
        for wanted, part in zip(operations, answer.responses, strict=True)
    ]


def _outcome(wanted: Operation, part: TxnPart, revision: int) -> Outcome:
    if isinstance(wanted, Read) and part.response_range is not None:
        rows = rows_of(part.response_range.kvs)
        return rows[0] if rows else None
    if isinstance(wanted, CompareAndSwap) and part.response_txn is not None:
        return swap_of(wanted.key, wanted.value, part.response_txn, revision)
    raise GatewayError(f"etcd has answered something else than an operation on {wanted.key!r}")


# Leases.


def grant_request(ttl_s: int) -> bytes:
    """Return the body of a request for a lease."""
    return _encode({"TTL": ttl_s})


def grant_answer(body: bytes) -> int:
    """Return the number of the lease."""
    lease: int = decoded(_leases, body).id
    if not lease:
        raise GatewayError(f"etcd has not granted a lease: {body[:200]!r}")
    return lease


def lease_request(lease: int) -> bytes:
    """Return the body that keeps a lease alive, or revokes it."""
    return _encode({"ID": lease})


def keep_alive_answer(body: bytes) -> bool:
    """Return whether the lease still exists."""
    return bool(decoded(_kept_alive, body).result.ttl_s)


# Watches.


def watch_request(prefix: str, revision: int) -> bytes:
    """Return the body of a watch on keys with a prefix, from a revision on."""
    first = key_bytes(prefix)
    wanted = {"key": first, "range_end": prefix_end(first), "start_revision": revision}
    return _encode({"create_request": wanted})


def watch_events(line: bytes, endpoint: str) -> list[Event]:
    """Return the writes in a line of a watch.

    Raises:
        CompactedError: the revision asked for is not kept any more.
        GatewayError: etcd has ended the watch, or the line is none of its.
    """
    parsed = decoded(_lines, line)
    news = parsed.result
    if news is None:
        text = parsed.error.message if parsed.error is not None else repr(line[:200])
        raise GatewayError(f"etcd at {endpoint} has ended a watch: {text}")
    if news.compact_revision:
        raise CompactedError(
            f"etcd at {endpoint} has been compacted to revision {news.compact_revision}"
        )
    if news.canceled:
        raise GatewayError(f"etcd at {endpoint} has ended a watch: {news.cancel_reason}")
    return [
        Event(
            key_text(each.kv.key),
            None if each.type == "DELETE" else each.kv.value,
            each.kv.mod_revision,
            each.kv.lease,
        )
        for each in news.events
    ]
