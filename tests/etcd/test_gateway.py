"""Requests to etcd's JSON gateway and its answers, as bytes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.etcd import gateway
from leveret.etcd.errors import (
    ClusterError,
    CompactedError,
    GatewayError,
    LoginRefusedError,
    TooLargeError,
    UnavailableError,
)
from leveret.etcd.gateway import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    NoAnswerError,
    OldTokenError,
    failure,
    read_answer,
    read_request,
    scan_answer,
    scan_request,
    swap_answer,
    swap_request,
)
from leveret.etcd.key_values import Row, Swap


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


HEADER = {"cluster_id": "16669793395648480238", "revision": "7", "raft_term": "2"}
KV = {"key": b64(b"/k"), "mod_revision": "5", "version": "1", "value": b64(b"\x00v")}


def body(**fields: Any) -> bytes:
    return json.dumps({"header": HEADER, **fields}).encode()


def test_a_read_answers_the_row_or_none() -> None:
    assert read_answer(body()) is None
    assert read_answer(body(kvs=[KV], count="1")) == Row("/k", b"\0v", 5)
    assert read_answer(body(kvs=[{"key": b64(b"/k"), "mod_revision": "5"}])) == Row("/k", b"", 5)


def test_a_scan_answers_rows_whether_there_are_more_and_the_revision() -> None:
    assert scan_answer(body(kvs=[KV], more=True)) == ([Row("/k", b"\0v", 5)], True, 7)


def test_a_swap_answers_what_was_written_or_what_is_there() -> None:
    found = [{"response_range": {"header": {"revision": "7"}, "kvs": [KV]}}]
    nothing = [{"response_range": {"header": {"revision": "7"}}}]
    done = body(succeeded=True, responses=[{"response_put": {"header": {"revision": "7"}}}])

    assert swap_answer("/k", b"x", done) == Swap(True, Row("/k", b"x", 7))
    assert swap_answer("/k", None, done) == Swap(True, None)
    assert swap_answer("/k", b"x", body(responses=found)) == Swap(False, Row("/k", b"\0v", 5))
    assert swap_answer("/k", b"x", body(responses=nothing)) == Swap(False, None)


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b"\xff", b'{"header":{"revision":"x"}}', body(kvs=[{"key": "/k"}])[:-1]],
)
def test_an_answer_that_is_none_of_etcds_is_an_error(answer: bytes) -> None:
    for read in (read_answer, scan_answer, lambda found: swap_answer("/k", b"", found)):
        with pytest.raises(GatewayError):
            read(answer)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error_of_the_cluster(answer: bytes) -> None:
    assert isinstance(failure(500, answer, "http://a:1"), ClusterError)
    try:
        read_answer(answer)
    except ClusterError:
        return


def test_a_swap_without_what_is_there_is_an_error() -> None:
    with pytest.raises(GatewayError, match="has not said"):
        swap_answer("/k", b"", body())


@given(st.text(min_size=1, max_size=50), st.binary(max_size=50), st.integers(0, 2**62))
def test_keys_values_and_revisions_get_through_unchanged(
    key: str, value: bytes, revision: int
) -> None:
    try:
        name = key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return
    sent = json.loads(swap_request(key, value, revision))

    (put,), (compare,) = sent["success"], sent["compare"]
    assert base64.b64decode(put["request_put"]["key"]) == name
    assert base64.b64decode(put["request_put"]["value"]) == value
    assert compare["mod_revision"] == revision
    row = {"key": b64(name), "mod_revision": str(revision), "value": b64(value)}
    assert read_answer(body(kvs=[row])) == Row(
        name.decode("utf-8", "surrogateescape"), value, revision
    )


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("/a/", b"/a0"), ("a", b"b"), ("a\udcff", b"b"), ("\udcff\udcff", b"\0")],
)
def test_a_scan_ends_behind_the_prefix(prefix: str, end: bytes) -> None:
    sent = json.loads(scan_request(prefix, None, 10, 0))

    assert base64.b64decode(sent["range_end"]) == end


def test_the_next_page_of_a_scan_begins_behind_the_last_key() -> None:
    sent = json.loads(scan_request("/a/", "/a/b", 10, 7))

    assert (base64.b64decode(sent["key"]), sent["revision"]) == (b"/a/b\0", 7)


def test_keys_and_values_above_the_limits_are_refused() -> None:
    with pytest.raises(TooLargeError, match=f"limit {KEY_BYTES_MAX}"):
        read_request("k" * (KEY_BYTES_MAX + 1))
    with pytest.raises(TooLargeError, match=f"for '/k', limit {VALUE_BYTES_MAX}"):
        swap_request("/k", bytes(VALUE_BYTES_MAX + 1), 0)
    with pytest.raises(GatewayError, match="empty"):
        read_request("")


FAILURES = [
    (400, 3, "etcdserver: authentication failed, invalid user ID or password", LoginRefusedError),
    (400, 3, "etcdserver: user name is empty", LoginRefusedError),
    (412, 9, "etcdserver: authentication is not enabled", LoginRefusedError),
    (403, 7, "etcdserver: permission denied", LoginRefusedError),
    (401, 16, "etcdserver: invalid auth token", OldTokenError),
    (400, 3, "etcdserver: revision of auth store is old", OldTokenError),
    (400, 3, "etcdserver: request is too large", TooLargeError),
    (400, 11, "etcdserver: mvcc: required revision has been compacted", CompactedError),
    (400, 11, "etcdserver: mvcc: required revision is a future revision", GatewayError),
    (429, 8, "etcdserver: mvcc: database space exceeded", UnavailableError),
    (429, 8, "etcdserver: too many requests", UnavailableError),
    (503, 14, "etcdserver: request timed out", NoAnswerError),
    (503, 14, "etcdserver: leader changed", NoAnswerError),
    (503, 14, "etcdserver: no leader", NoAnswerError),
    (504, 4, "context deadline exceeded", NoAnswerError),
    (500, 2, "unknown", NoAnswerError),
    (500, 13, "internal", NoAnswerError),
    (400, 3, "etcdserver: key is not provided", GatewayError),
    (501, 12, "unknown service", GatewayError),
]


@pytest.mark.parametrize(("status", "code", "text", "kind"), FAILURES, ids=[f[2] for f in FAILURES])
def test_a_failure_of_etcd_becomes_the_error_that_says_what_to_do(
    status: int, code: int, text: str, kind: type[ClusterError]
) -> None:
    answer = json.dumps({"error": text, "message": text, "code": code}).encode()
    error = failure(status, answer, "http://a:1")

    assert type(error) is kind
    assert "http://a:1" in str(error)
    assert text in str(error)


def test_other_servers_and_gateways_that_are_off_are_told_apart_from_outages() -> None:
    assert type(failure(502, b"<html>Bad Gateway", "http://a:1")) is NoAnswerError
    error = failure(404, b"404 page not found", "http://a:1")
    assert type(error) is GatewayError
    assert "--enable-grpc-gateway" in str(error)


def test_the_names_of_the_gateway_are_those_of_etcd_34() -> None:
    assert (gateway.RANGE, gateway.TXN) == ("/v3/kv/range", "/v3/kv/txn")
