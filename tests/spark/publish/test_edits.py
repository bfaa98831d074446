from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.amqp.properties import Properties, decode_properties, encode_properties
from leveret.amqp.tables import Table
from leveret.spark.publish import edits
from leveret.spark.publish.errors import RowError
from leveret.spark.publish.identity import Number
from rigs.wire.field_tables import TABLES

TEXT = st.text(max_size=20)
PROPERTIES = st.builds(
    Properties,
    content_type=st.none() | TEXT,
    content_encoding=st.none() | TEXT,
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    expiration=st.none() | TEXT,
    message_id=st.none() | TEXT,
    timestamp=st.none() | st.integers(0, (1 << 64) - 1),
    type=st.none() | TEXT,
    user_id=st.none() | TEXT,
    app_id=st.none() | TEXT,
    cluster_id=st.none() | TEXT,
)


def decoded(properties: bytes) -> Properties:
    return decode_properties(edits.head(properties, 0))


def headers(properties: bytes) -> Table:
    return decoded(properties).headers or {}


@given(PROPERTIES)
def test_raw_properties_without_edits_stay_as_they_are(properties: Properties) -> None:
    raw = encode_properties(properties)

    assert edits.edited(edits.checked(raw)) is raw


@given(PROPERTIES, st.dictionaries(TEXT, TEXT, max_size=3), st.data())
def test_edits_change_the_named_headers_only(
    properties: Properties, added: dict[str, str], data: st.DataObject
) -> None:
    before = properties.headers or {}
    removed = data.draw(st.lists(st.sampled_from([*before, "absent"]), max_size=3))
    raw = encode_properties(properties)

    found = decoded(edits.edited(raw, list(added.items()), removed))

    kept = {name: field for name, field in before.items() if name not in removed}
    expected = kept | {name: ("S", value.encode()) for name, value in added.items()}
    assert repr(found.headers or {}) == repr(expected)
    found.headers = properties.headers
    assert repr(found) == repr(properties)


@given(PROPERTIES)
def test_a_message_id_is_added_where_there_is_none(properties: Properties) -> None:
    raw = encode_properties(properties)

    found = edits.with_message_id(raw, "id-1")

    if properties.message_id is not None:
        assert found is raw
    else:
        properties.message_id = "id-1"
        assert found == encode_properties(properties)


def test_an_earlier_senders_headers_are_removed_and_the_rest_keeps_its_bytes() -> None:
    table: Table = {
        "a": ("I", 1), "x-producer-id": ("S", b"old"), "x-producer-seq": ("l", 5), "b": ("D", (2, 7)),
    }  # fmt: skip
    raw = encode_properties(Properties(headers=table, delivery_mode=2))

    found = edits.edited(raw)

    expected: Table = {"a": ("I", 1), "b": ("D", (2, 7))}
    assert found == encode_properties(Properties(headers=expected, delivery_mode=2))


def test_a_number_is_written_as_the_broker_reads_it() -> None:
    found = edits.edited(edits.PERSISTENT, number=Number("job/0/1:/q", (1 << 63) - 1), epoch=3)

    assert headers(found) == {
        "x-producer-id": ("S", b"job/0/1:/q"),
        "x-producer-epoch": ("l", 3),
        "x-producer-seq": ("l", (1 << 63) - 1),
    }
    assert decoded(found).delivery_mode == 2


def test_headers_set_cannot_claim_to_be_a_producer() -> None:
    with pytest.raises(RowError, match="dedup=producer"):
        edits.edited(edits.PERSISTENT, [("x-producer-seq", "1")])


@pytest.mark.parametrize(
    "raw", [b"", b"\x10", b"\x10\x00", b"\x10\x00\x02\x02", b"\x00\x01", b"\x20\x00\xff"]
)
def test_malformed_raw_properties_are_refused(raw: bytes) -> None:
    with pytest.raises(RowError, match="properties_raw"):
        edits.checked(raw)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Properties(delivery_mode=2)),
        (
            {"delivery_mode": 1, "type": "t", "priority": None},
            Properties(delivery_mode=1, type="t"),
        ),
    ],
)
def test_properties_of_a_row_are_encoded_and_persistent_by_default(
    values: dict[str, Any], expected: Properties
) -> None:
    assert edits.encoded(values) == encode_properties(expected)


@pytest.mark.parametrize("values", [{"priority": 256}, {"type": "x" * 256}])
def test_a_value_that_does_not_fit_its_property_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(RowError, match="cannot be encoded"):
        edits.encoded(values)
