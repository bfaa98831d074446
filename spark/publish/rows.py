"""Rows of a record batch as messages: the columns a batch may have, their types, and the reading of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from leveret.amqp import methods
from leveret.core.limits import SHORTSTR_BYTES_MAX
from leveret.spark.errors import OptionError
from leveret.spark.publish import edits
from leveret.spark.publish.errors import RowError
from leveret.spark.publish.identity import Key, Partition
from leveret.spark.publish.options import MESSAGE_ID, NONE, PRODUCER, WriteOptions

_KEY: Final = ("vhost", "queue", "seq_id")
_QUEUE_NO: Final = "queue_no"
_METHODS_KEPT: Final = 4_096
_TEXT: Final = (pa.string(), pa.large_string())
_BYTES: Final = (pa.binary(), pa.large_binary())
_PROPERTIES: Final = {
    "content_type": "text", "content_encoding": "text", "delivery_mode": "number", "priority": "number",
    "correlation_id": "text", "reply_to": "text", "expiration": "text", "message_id": "text", "timestamp": "time",
    "type": "text", "user_id": "text", "app_id": "text", "cluster_id": "text",
}  # fmt: skip
_COLUMNS: Final = {
    "body": "bytes", "exchange": "text", "routing_key": "text", "properties_raw": "bytes",
    "properties": "properties", "headers_set": "map of text to text", "headers_remove": "array of text",
    "vhost": "text", "queue": "text", "seq_id": "number", "queue_no": "number",
}  # fmt: skip


class Row:
    """One message to publish.

    Attributes:
        place: the row's place in the partition, from 0.
        key: where it came from, None without key columns.
        method: the payload of basic.publish.
        properties: ``flags:u16 values``.
    """

    __slots__ = ("body", "key", "method", "place", "properties")

    def __init__(
        self, place: int, key: Key | None, method: bytes, properties: bytes, body: bytes
    ) -> None:
        self.place = place
        self.key = key
        self.method = method
        self.properties = properties
        self.body = body

    def __str__(self) -> str:
        """The row's name in errors."""
        return name_of(self.place, self.key)


def name_of(place: int, key: Key | None) -> str:
    """Return a row's name for errors."""
    if key is None:
        return f"row {place} of the partition"
    return f'row {place} of the partition (queue "{key.queue}" of vhost "{key.vhost}", seq_id {key.seq_id})'


def check_columns(schema: Any, options: WriteOptions, *, is_stream: bool) -> None:
    """Check an Arrow schema before anything is sent.

    Raises:
        OptionError: a column is missing, unknown, of a wrong type, or contradicts another one.
    """
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f'column "{twice[0]}" comes twice')
    unknown = sorted(set(names) - _COLUMNS.keys())
    if unknown and not options.ignore_unknown_columns:
        raise OptionError(
            f'unknown column "{unknown[0]}": select only {", ".join(_COLUMNS)},'
            " or set ignoreUnknownColumns=true"
        )
    for name, kind in _COLUMNS.items():
        if name in names:
            _check_type(name, kind, schema.field(name).type)
    wrong = [text for is_wrong, text in _rules(set(names), options, is_stream) if is_wrong]
    if wrong:
        raise OptionError(wrong[0])


def _rules(names: set[str], options: WriteOptions, is_stream: bool) -> list[tuple[bool, str]]:
    has_key = names.issuperset(_KEY)
    numbers_by_key = options.dedup != NONE and not is_stream
    return [
        ("body" not in names, "column body is missing: it is the message"),
        (
            {"properties_raw", "properties"} <= names,
            "columns properties_raw and properties exclude each other: drop one",
        ),
        (
            "exchange" not in names and options.exchange is None,
            "neither a column nor an option exchange: each message needs one, empty for the default exchange",
        ),
        (
            "routing_key" not in names and options.routing_key is None,
            "neither a column routing_key nor an option routingKey: each message needs one, which may be empty",
        ),
        (
            bool(options.ledger) and not has_key,
            "ledger needs the key columns vhost, queue and seq_id",
        ),
        (
            _QUEUE_NO in names and not has_key,
            "queue_no is a part of the key, whose columns vhost, queue and seq_id are needed with it",
        ),
        (
            numbers_by_key and not has_key,
            f"dedup={options.dedup} needs the key columns vhost, queue and seq_id",
        ),
        (
            options.dedup == PRODUCER and not is_stream and not options.producer_id,
            "dedup=producer needs producerId, the same one each time the job is started again",
        ),
        (
            is_stream and bool(options.producer_id),
            "producerId has no effect in a stream, whose query id is the producer",
        ),
    ]


def _check_type(name: str, kind: str, found: Any) -> None:
    if kind == "properties":
        if not pa.types.is_struct(found):
            raise OptionError(f"column {name} is {found}, must be a struct of properties")
        for field in found:
            if field.name not in _PROPERTIES:
                raise OptionError(
                    f"properties.{field.name} is unknown; known are {', '.join(_PROPERTIES)}"
                )
            _check_type(f"properties.{field.name}", _PROPERTIES[field.name], field.type)
        return
    if not _IS_KIND[kind](found):
        cast = {"bytes": "BINARY", "text": "STRING", "number": "BIGINT"}.get(kind)
        remedy = f": CAST({name} AS {cast})" if cast else ""
        raise OptionError(f"column {name} is {found}, must be {kind}{remedy}")


def _is_map(found: Any) -> bool:
    return bool(pa.types.is_map(found)) and found.key_type in _TEXT and found.item_type in _TEXT


_IS_KIND: Final[dict[str, Any]] = {
    "bytes": lambda found: found in _BYTES,
    "text": lambda found: found in _TEXT,
    "number": pa.types.is_signed_integer,
    "time": lambda found: pa.types.is_timestamp(found) or found == pa.int64(),
    "map of text to text": _is_map,
    "array of text": lambda found: pa.types.is_list(found) and found.value_type in _TEXT,
}


class RowReader:
    """Reads the rows of a partition, batch by batch."""

    def __init__(self, options: WriteOptions, partition: Partition) -> None:
        self._options = options
        self._partition = partition
        self._methods: dict[tuple[str | None, str | None], bytes] = {}
        self._raw: bytes | None = None
        self._is_checked = False
        self._place = 0

    def columns(self, batch: Any) -> tuple[list[Key] | None, list[list[Any]]]:
        """Return a batch's keys, and its other columns as lists in the order that ``row`` takes them.

        Raises:
            OptionError: the columns are not those of a sink.
            RowError: a key is null.
        """
        if not self._is_checked:
            check_columns(batch.schema, self._options, is_stream=self._partition.has_places)
            self._is_checked = True
        names = set(batch.schema.names)
        empty = [None] * batch.num_rows

        def values(name: str) -> list[Any]:
            return batch.column(name).to_pylist() if name in names else empty

        others = [values(name) for name in _COLUMNS if name not in {*_KEY, _QUEUE_NO}]
        if not names.issuperset(_KEY):
            return None, others
        vhosts, queues, seq_ids = (values(name) for name in _KEY)
        numbers = values(_QUEUE_NO) if _QUEUE_NO in names else [0] * batch.num_rows
        parts = (vhosts, queues, numbers, seq_ids)
        for name, column in zip(Key._fields, parts, strict=True):
            if None in column:
                raise RowError(
                    f"{name} of row {self._place + column.index(None)} of the partition is null"
                )
        return list(map(Key._make, zip(*parts, strict=True))), others

    def places(self, batch: Any) -> Iterator[int]:
        """Number the rows of the next batch."""
        start = self._place
        self._place += batch.num_rows
        return iter(range(start, self._place))

    def row(self, place: int, key: Key | None, values: tuple[Any, ...]) -> Row:
        """Return a row from ``body, exchange, routing_key, properties_raw, properties, headers_set, headers_remove``.

        Raises:
            RowError: it cannot become a message; the error names it.
        """
        body, exchange, routing_key, raw, properties, headers_set, headers_remove = values
        try:
            if body is None:
                raise RowError("body is null: an empty message has an empty body")
            method = self._methods.get((exchange, routing_key)) or self._method(
                exchange, routing_key
            )
            found = self._properties(raw, properties)
            return Row(
                place,
                key,
                method,
                self._edited(found, place, key, headers_set or (), headers_remove or ()),
                body,
            )
        except RowError as error:
            raise RowError(f"{name_of(place, key)}: {error}") from None

    def _properties(self, raw: bytes | None, properties: dict[str, Any] | None) -> bytes:
        if raw is not None:
            if raw != self._raw:
                self._raw = edits.checked(raw)
            return raw
        return edits.encoded(properties) if properties is not None else edits.PERSISTENT

    def _edited(
        self, properties: bytes, place: int, key: Key | None, headers_set: Any, headers_remove: Any
    ) -> bytes:
        options, number = self._options, None
        if options.dedup == PRODUCER:
            number = self._partition.number_of(options.producer_id, key, place)
        elif options.dedup == MESSAGE_ID:
            message_id = self._partition.message_id(key, place)
            properties = edits.with_message_id(properties, message_id)
        return edits.edited(properties, headers_set, headers_remove, number, options.producer_epoch)

    def _method(self, exchange: str | None, routing_key: str | None) -> bytes:
        options = self._options
        method = methods.encode(
            methods.BasicPublish(
                _name("exchange", exchange, options.exchange),
                _name("routing_key", routing_key, options.routing_key),
                options.mandatory,
            )
        )
        if len(self._methods) >= _METHODS_KEPT:
            self._methods.clear()
        self._methods[exchange, routing_key] = method
        return method


def _name(column: str, value: str | None, default: str | None) -> str:
    found = default if value is None else value
    if found is None:
        raise RowError(f"{column} is null, and there is no option for such rows")
    size = len(found.encode())
    if size > SHORTSTR_BYTES_MAX:
        raise RowError(f"{column} has {size} bytes; AMQP allows {SHORTSTR_BYTES_MAX}")
    return found
