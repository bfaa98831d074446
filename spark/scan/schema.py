"""The columns of every view: their names, their types in Spark's DDL, and the same types in Arrow.

One table has both, so that what executors send is what Spark was promised; a test compares them with Spark's own
translation. docs/spark.md explains the columns.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa

from leveret.spark.errors import OptionError
from leveret.spark.scan.headers import DEATHS, HEADERS
from leveret.spark.scan.properties import PROPERTIES

TIME: Final = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """A column of a view."""

    name: str
    ddl: str
    arrow: Any


_SIMPLE: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": TIME,
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": HEADERS,
}
_PROPERTIES_DDL: Final = (
    "struct<content_type:string,content_encoding:string,delivery_mode:smallint,priority:smallint,"
    "correlation_id:string,reply_to:string,expiration:string,message_id:string,timestamp:timestamp,"
    "type:string,user_id:string,app_id:string,cluster_id:string>"
)
_DEATHS_DDL: Final = (
    "array<struct<count:bigint,reason:string,queue:string,exchange:string,routing_keys:array<string>,"
    "time:timestamp,original_expiration:string>>"
)


def _columns(text: str) -> tuple[Column, ...]:
    columns = []
    for line in text.split(";"):
        name, ddl = line.split()
        kind = {_PROPERTIES_DDL: PROPERTIES, _DEATHS_DDL: DEATHS}.get(ddl) or _SIMPLE[ddl]
        columns.append(Column(name, ddl, kind))
    return tuple(columns)


MESSAGES: Final = _columns(
    "store_id string; node string; vhost string; queue string; queue_no bigint; seq_id bigint;"
    " state string; msg_id binary; exchange string; routing_key string; routing_keys array<string>;"
    " enqueued_at timestamp; expires_at timestamp; persistent boolean; redelivered boolean;"
    f" delivery_count int; body_size bigint; properties {_PROPERTIES_DDL};"
    f" headers map<string,string>; x_death {_DEATHS_DDL};"
    " properties_raw binary; segment bigint; offset bigint; length bigint; body binary"
)
VIEWS: Final[dict[str, tuple[Column, ...]]] = {
    "messages": MESSAGES,
    "archive": MESSAGES,
    "index": _columns(
        "store_id string; node string; vhost string; queue string; queue_no bigint; seq_id bigint;"
        " msg_id binary; enqueued_at timestamp; expires_at timestamp; persistent boolean;"
        " redelivered boolean; state string; in_store boolean; body_size bigint;"
        " segment bigint; offset bigint; length bigint"
    ),
    "records": _columns(
        "store_id string; node string; vhost string; msg_id binary; segment bigint; offset bigint;"
        " length bigint; crc_ok boolean; stored_at timestamp; exchange string; routing_key string;"
        " body_size bigint; refcount bigint"
    ),
    "segments": _columns(
        "store_id string; node string; vhost string; segment bigint; size bigint; live_bytes bigint;"
        " garbage_bytes bigint; rows bigint; min_time timestamp; max_time timestamp; sealed boolean"
    ),
    "queues": _columns(
        "store_id string; node string; vhost string; queue string; durable boolean; arguments string;"
        " depth bigint; first_seq bigint; last_seq bigint"
    ),
}


def columns_of(view: str, names: tuple[str, ...] | None) -> tuple[Column, ...]:
    """Return the columns of a view, in the order of the view; all of them without ``names``.

    Raises:
        OptionError: a name is not a column of the view.
    """
    every = VIEWS[view]
    if names is None:
        return every
    known = [column.name for column in every]
    for name in names:
        if name not in known:
            raise OptionError(f"view {view} has no column {name!r}; it has {', '.join(known)}")
    return tuple(column for column in every if column.name in names)


def ddl(columns: tuple[Column, ...]) -> str:
    """Return the columns as a schema for Spark."""
    return ", ".join(f"`{column.name}` {column.ddl}" for column in columns)


def arrow_schema(columns: tuple[Column, ...]) -> Any:
    """Return the columns as a schema of Arrow."""
    return pa.schema([(column.name, column.arrow) for column in columns])
