from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from leveret.spark.errors import OptionError
from leveret.spark.publish.errors import RowError
from leveret.spark.publish.identity import Key, Partition
from leveret.spark.publish.options import parse
from leveret.spark.publish.rows import RowReader, check_columns
from rigs.sink_rows import batch

BODY = ("body", pa.binary())
KEY = [("vhost", pa.string()), ("queue", pa.string()), ("seq_id", pa.int64())]
TO_Q = {"uri": "amqp://h", "exchange": "", "routingKey": "q"}
PRODUCER = {"dedup": "producer", "producerId": "p"}


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ([], {}, "body is missing"),
        ([BODY, ("colour", pa.string())], {}, 'unknown column "colour"'),
        ([BODY, BODY], {}, "comes twice"),
        ([("body", pa.string())], {}, r"CAST\(body AS BINARY\)"),
        ([BODY, ("exchange", pa.binary())], {}, r"CAST\(exchange AS STRING\)"),
        ([BODY, ("seq_id", pa.string())], {}, r"CAST\(seq_id AS BIGINT\)"),
        ([BODY, ("headers_set", pa.map_(pa.string(), pa.int64()))], {}, "map of text to text"),
        ([BODY, ("headers_remove", pa.string())], {}, "array of text"),
        ([BODY, ("properties", pa.string())], {}, "must be a struct"),
        ([BODY, ("properties", pa.struct([("headers", pa.string())]))], {}, "properties.headers is unknown"),
        ([BODY, ("properties", pa.struct([("priority", pa.string())]))], {}, "properties.priority is string"),
        ([BODY, ("properties", pa.struct([])), ("properties_raw", pa.binary())], {}, "exclude each other"),
        ([BODY, *KEY[:2]], {"ledger": "/x"}, "ledger needs the key columns"),
        ([BODY], {"dedup": "message_id"}, "dedup=message_id needs the key columns"),
        ([BODY, *KEY], {"dedup": "producer"}, "needs producerId"),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(columns: Any, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        check_columns(pa.schema(columns), parse(TO_Q | options), is_stream=False)


@pytest.mark.parametrize("missing", ["exchange", "routingKey"])
def test_each_message_needs_an_exchange_and_a_routing_key(missing: str) -> None:
    options = {name: value for name, value in TO_Q.items() if name != missing}

    with pytest.raises(OptionError, match=missing):
        check_columns(pa.schema([BODY]), parse(options), is_stream=False)


def test_a_stream_needs_no_keys_and_takes_no_producer_id() -> None:
    check_columns(pa.schema([BODY]), parse(TO_Q | {"dedup": "producer"}), is_stream=True)

    with pytest.raises(OptionError, match="query id is the producer"):
        check_columns(pa.schema([BODY]), parse(TO_Q | PRODUCER), is_stream=True)


def test_unknown_columns_may_be_ignored() -> None:
    options = parse(TO_Q | {"ignoreUnknownColumns": "true"})

    check_columns(pa.schema([BODY, ("colour", pa.string())]), options, is_stream=False)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"body": None}, "body is null"),
        ({"body": b"", "routing_key": "k" * 256}, "routing_key has 256 bytes"),
        ({"body": b"", "headers_set": [("n" * 256, "v")]}, "headers cannot be edited"),
    ],
)
def test_a_row_that_is_no_message_is_named(row: dict[str, Any], text: str) -> None:
    reader = RowReader(parse(TO_Q), Partition())
    keys, columns = reader.columns(batch([row]))
    assert keys is None
    (values,) = zip(*columns, strict=True)

    with pytest.raises(RowError, match=rf"row 5 of the partition \(queue.*{text}"):
        reader.row(5, Key("/", "q", 0, 7), values)


def test_a_null_in_a_key_is_named_by_its_row() -> None:
    rows = [{"body": b"", "vhost": "/", "queue": queue, "seq_id": 1} for queue in ("a", None)]

    with pytest.raises(RowError, match="queue of row 1"):
        RowReader(parse(TO_Q), Partition()).columns(batch(rows))


def test_long_names_are_digested_and_stay_different() -> None:
    names = [f"{'q' * 240}{number}" for number in range(2)]

    producers = {Partition(3).number_of("job", Key("/", name, 0, 1), 0).producer for name in names}
    ids = {Partition(3).message_id(Key("/", name, 0, 1), 0) for name in names}

    assert len(producers) == len(ids) == 2
    assert all(len(text) <= 255 and text.startswith("job/3/") for text in producers)


def test_vhost_and_queue_do_not_run_into_each_other() -> None:
    keys = [Key("a/b", "c", 0, 1), Key("a", "b/c", 0, 1)]

    assert len({Partition().message_id(key, 0) for key in keys}) == 2
