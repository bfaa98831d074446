"""What becomes of messages on their way: routes of dead letters, headers, keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from leveret.amqp.properties import Properties, decode_properties, encode_properties
from leveret.amqp.tables import Table
from leveret.spark.errors import OptionError
from leveret.spark.jobs.replay.rewrite import Rewrite, Route, first_route, headers_of_words
from leveret.spark.publish import edits
from leveret.spark.publish.errors import RowError


def death(queue: str, reason: str, exchange: str, *keys: str) -> tuple[str, Any]:
    table: Table = {
        "queue": ("S", queue.encode()),
        "reason": ("S", reason.encode()),
        "exchange": ("S", exchange.encode()),
        "routing-keys": ("A", [("S", key.encode()) for key in keys]),
    }
    return "F", table


def dead(*deaths: Any, first: tuple[str, str] | None = None) -> Table:
    table: Table = {"x-death": ("A", list(deaths))}
    if first is not None:
        table["x-first-death-queue"] = ("S", first[0].encode())
        table["x-first-death-reason"] = ("S", first[1].encode())
    return table


WORK = death("work", "rejected", "orders", "eu.1")
RETRY = death("retry", "expired", "dlx", "work")
ROUTES: list[tuple[Table, Route | None]] = [
    ({}, None),
    (dead(), None),
    (dead(WORK), Route("orders", "eu.1")),
    (dead(RETRY, WORK), Route("orders", "eu.1")),
    (dead(WORK, RETRY), Route("dlx", "work")),
    (dead(WORK, RETRY, first=("work", "rejected")), Route("orders", "eu.1")),
    (dead(WORK, RETRY, first=("gone", "rejected")), Route("dlx", "work")),
    (dead(death("work", "expired", "", "q", "cc.1", "cc.2")), Route("", "q", ("cc.1", "cc.2"))),
    (dead(death("work", "expired", "orders")), None),
    ({"x-death": ("S", b"text")}, None),
    ({"x-death": ("A", [("S", b"text")])}, None),
    (dead(("F", {"queue": ("S", b"q")})), None),
]


@pytest.mark.parametrize(("headers", "route"), ROUTES)
def test_the_first_death_says_where_a_letter_came_from(headers: Table, route: Route | None) -> None:
    assert first_route(headers) == route


def batch(*raws: bytes, **columns: list[Any]) -> Any:
    rows = [
        {
            "vhost": "v",
            "queue": "q",
            "queue_no": 3,
            "seq_id": place,
            "store_id": "5t0re",
            "msg_id": bytes(8) + (100 + place).to_bytes(8, "big"),
            "exchange": "e",
            "routing_key": "k",
            "properties_raw": raw,
            "body": b"%d" % place,
        }
        for place, raw in enumerate(raws)
    ]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return pa.RecordBatch.from_pylist(rows)


def headers(raw: bytes) -> Table | None:
    return decode_properties(edits.head(raw, 0)).headers


def test_a_replay_of_a_replay_keeps_its_id_and_counts_on() -> None:
    (first,) = Rewrite().batch(batch(edits.PERSISTENT)).batch.to_pylist()
    (second,) = Rewrite().batch(batch(first["properties_raw"])).batch.to_pylist()

    assert headers(first["properties_raw"]) == {
        "x-replayed-from": ("S", b"v/q"),
        "x-replay-id": ("S", b"5t0re/3/100"),
        "x-replay-count": ("l", 1),
    }
    found = headers(second["properties_raw"])
    assert found is not None
    assert found["x-replay-count"] == ("l", 2)
    assert (second["seq_id"], second["body"]) == (0, b"0")


def test_a_count_that_is_no_number_begins_anew() -> None:
    raw = encode_properties(Properties(headers={"x-replay-count": ("S", b"many")}))

    (row,) = Rewrite().batch(batch(raw)).batch.to_pylist()

    found = headers(row["properties_raw"])
    assert found is not None
    assert found["x-replay-count"] == ("l", 1)


def test_rows_of_the_archive_are_numbered_by_their_messages() -> None:
    found = Rewrite(has_seqs=False).batch(batch(b"\0\0", b"\0\0", seq_id=[None, 7])).batch

    assert found.column("seq_id").to_pylist() == [100, 101]


def test_letters_without_an_origin_are_left_out_with_their_bodies() -> None:
    raws = [encode_properties(Properties(headers=dead(WORK))), b"\0\0", edits.PERSISTENT]

    found = Rewrite(to_original=True, has_marks=False).batch(batch(*raws))

    assert found.batch.column("body").to_pylist() == [b"0"]
    assert found.batch.column("exchange").to_pylist() == ["orders"]
    assert [key.seq_id for key in found.left_out] == [1, 2]


def test_set_headers_win_over_marks_and_removals() -> None:
    raw = encode_properties(Properties(headers={"a": ("I", 1), "b": ("I", 2)}))
    change = Rewrite(set_headers=(("x-replay-id", "mine"), ("a", "2")), remove_headers=("a", "b"))

    (row,) = change.batch(batch(raw)).batch.to_pylist()

    found = headers(row["properties_raw"])
    assert found is not None
    assert (found["x-replay-id"], found["a"]) == (("S", b"mine"), ("S", b"2"))
    assert "b" not in found


def test_a_message_that_was_published_without_a_key_has_the_empty_one() -> None:
    found = Rewrite().batch(batch(b"\0\0", routing_key=[None])).batch

    assert found.column("routing_key").to_pylist() == [""]


@pytest.mark.parametrize("raw", [b"\x20\x00\x00\x00\x00\x09abc", b"\xff"])
def test_properties_that_cannot_be_read_are_named(raw: bytes) -> None:
    with pytest.raises(
        RowError, match=r'queue "q" of vhost "v", seq_id 0: .*malformed|properties_raw'
    ):
        Rewrite(strip_expiration=True).batch(batch(raw))


def test_a_header_is_a_name_and_a_value() -> None:
    assert headers_of_words(["a=b=c", "d="]) == (("a", "b=c"), ("d", ""))
    with pytest.raises(OptionError, match="not NAME=VALUE"):
        headers_of_words(["alone"])
