"""What a replay makes of stored messages: where they go, and which headers they get.

Works on record batches, in this process and in tasks of Spark alike. A message without any change keeps its properties
byte for byte; else only its headers, or its expiration, are written anew.

**To the original** means: to the exchange and with the routing keys that a dead letter had when it died first. RabbitMQ
moves an entry of ``x-death`` to the front whenever its queue and reason recur, so the first death is the entry that
``x-first-death-queue`` and ``x-first-death-reason`` name, and the last one only where these are missing. Of several
routing keys the first is published and the others go into the header ``CC``, from which they had come.

**Marks**: ``x-replayed-from`` is ``VHOST/QUEUE``; ``x-replay-id`` is ``STORE/QUEUE_NO/NUMBER``, the same each time the
message is replayed from that queue, so consumers can tell that they have had it; ``x-replay-count`` counts replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from leveret.amqp.errors import ProtocolError
from leveret.amqp.tables import Table
from leveret.spark.errors import OptionError
from leveret.spark.publish import edits
from leveret.spark.publish.errors import RowError
from leveret.spark.publish.identity import Key

FROM: Final = "x-replayed-from"
ID: Final = "x-replay-id"
COUNT: Final = "x-replay-count"
_DEATHS: Final = "x-death"
_FIRST: Final = "x-first-death-"
_OF_DEATH: Final = (_DEATHS, *(f"{_FIRST}{name}" for name in ("exchange", "queue", "reason")))
_CC: Final = "CC"
_INTEGERS: Final = frozenset("bBsuIilL")
_KEY: Final = ("vhost", "queue", "queue_no", "seq_id")
_SINK: Final = {
    "vhost": pa.string(), "queue": pa.string(), "queue_no": pa.int64(), "seq_id": pa.int64(),
    "exchange": pa.string(), "routing_key": pa.string(), "properties_raw": pa.binary(),
}  # fmt: skip
SENT: Final = pa.struct(
    [(name, _SINK[name]) for name in ("seq_id", "exchange", "routing_key", "properties_raw")]
)
_BODY: Final = ("body", "body_size")


class Route(NamedTuple):
    """An exchange, a routing key, and the further keys of ``CC``."""

    exchange: str
    routing_key: str
    more: tuple[str, ...] = ()


class Sent(NamedTuple):
    """What a message becomes."""

    exchange: str
    routing_key: str
    properties_raw: bytes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """How messages change on their way.

    Attributes:
        exchange, routing_key: where to; None: as stored.
        to_original: as a dead letter was published first; messages that never died are left out.
        set_headers: names and values.
        remove_headers: names; removed before others are set.
        strip_expiration: without the property expiration, which would have old messages expire at once.
        reset_death: without ``x-death`` and ``x-first-death-*``.
        has_marks: with the three headers of a replay.
        has_seqs: rows have seqs; else, in the archive, the message's number is the last part of their key.
    """

    exchange: str | None = None
    routing_key: str | None = None
    to_original: bool = False
    set_headers: tuple[tuple[str, str], ...] = ()
    remove_headers: tuple[str, ...] = ()
    strip_expiration: bool = False
    reset_death: bool = False
    has_marks: bool = True
    has_seqs: bool = True

    def __post_init__(self) -> None:
        if self.to_original and (self.exchange is not None or self.routing_key is not None):
            raise OptionError(
                "to-original has messages go where they died first: leave exchange and routing-key-to out"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that ``batch`` reads, besides ``body`` or ``body_size``, which it takes along."""
        return (*_KEY, "store_id", "msg_id", "exchange", "routing_key", "properties_raw")

    def route_only(self) -> Rewrite:
        """Return the rewrite that only says where messages go, for counting."""
        return replace(
            self,
            set_headers=(),
            remove_headers=(),
            strip_expiration=False,
            reset_death=False,
            has_marks=False,
        )

    @property
    def is_plain(self) -> bool:
        """Whether headers stay as they are."""
        edits_headers = (
            self.set_headers or self.remove_headers or self.reset_death or self.has_marks
        )
        return not edits_headers and not self.to_original

    def rows(self, batch: Any) -> tuple[list[Key], list[Sent | None]]:
        """Return the key of each row, and what it becomes; None: it is to be left out.

        Raises:
            RowError: properties cannot be read or written; the error names the row.
        """
        columns = {name: batch.column(name).to_pylist() for name in self.columns}
        if not self.has_seqs:
            columns["seq_id"] = [*map(_number, columns["msg_id"])]
        keys = [*map(Key._make, zip(*(columns[name] for name in _KEY), strict=True))]
        found: list[Sent | None] = []
        for place, key in enumerate(keys):
            try:
                values = {name: column[place] for name, column in columns.items()}
                found.append(self._message(key, values))
            except RowError as error:
                text = f'queue "{key.queue}" of vhost "{key.vhost}", seq_id {key.seq_id}: {error}'
                raise RowError(text) from None
        return keys, found

    def batch(self, batch: Any) -> Rewritten:
        """Return a record batch with the columns of a sink; raises as ``rows``."""
        keys, found = self.rows(batch)
        rows = [(*key, *sent) for key, sent in zip(keys, found, strict=True) if sent is not None]
        arrays = [
            pa.array([row[place] for row in rows], kind)
            for place, kind in enumerate(_SINK.values())
        ]
        kept = pa.array([place for place, sent in enumerate(found) if sent is not None], pa.int64())
        names = [name for name in _BODY if name in batch.schema.names]
        taken = [batch.column(name).take(kept) for name in names]
        made = pa.record_batch([*arrays, *taken], names=[*_SINK, *names])
        left_out = [key for key, sent in zip(keys, found, strict=True) if sent is None]
        return Rewritten(made, left_out)

    def _message(self, key: Key, values: dict[str, Any]) -> Sent | None:
        properties = edits.checked(values["properties_raw"])
        route = self._route(values, properties)
        if route is None:
            return None
        if self.strip_expiration:
            properties = edits.without_expiration(properties)
        if not self.is_plain:
            properties = edits.with_headers(
                properties, lambda table: self._headers(table, key, values, route)
            )
        return Sent(route.exchange, route.routing_key, properties)

    def _route(self, values: dict[str, Any], properties: bytes) -> Route | None:
        if self.to_original:
            try:
                return first_route(edits.headers_of(properties))
            except ProtocolError as error:
                raise RowError(f"the headers cannot be read: {error}") from None
        return Route(
            values["exchange"] if self.exchange is None else self.exchange,
            (values["routing_key"] or "") if self.routing_key is None else self.routing_key,
        )

    def _headers(self, before: Table, key: Key, values: dict[str, Any], route: Route) -> Table:
        gone = {*self.remove_headers, *(_OF_DEATH if self.reset_death else ())}
        table: Table = {name: each for name, each in before.items() if name not in gone}
        if route.more:
            table[_CC] = ("A", [("S", _octets(each)) for each in route.more])
        if self.has_marks:
            letter, count = before.get(COUNT, ("l", 0))
            table[FROM] = ("S", _octets(f"{key.vhost}/{key.queue}"))
            number = _number(values["msg_id"])
            table[ID] = ("S", f"{values['store_id']}/{key.queue_no}/{number}".encode())
            table[COUNT] = ("l", count + 1 if letter in _INTEGERS else 1)
        for name, value in self.set_headers:
            table[name] = ("S", _octets(value))
        return table


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A batch for the sink, and the keys of rows that never died, which ``to_original`` leaves out."""

    batch: Any
    left_out: list[Key] = field(default_factory=list)


def first_route(headers: Table) -> Route | None:
    """Return where a dead letter was published before it died first; None if its headers do not say it."""
    letter, entries = headers.get(_DEATHS, ("V", None))
    deaths = [table for kind, table in entries if kind == "F"] if letter == "A" else []
    if not deaths:
        return None
    named = [_text(headers, f"{_FIRST}{name}") for name in ("queue", "reason")]
    for death in deaths:
        if None not in named and [_text(death, "queue"), _text(death, "reason")] == named:
            return _route_of(death)
    return _route_of(deaths[-1])


def _route_of(death: Table) -> Route | None:
    exchange = _text(death, "exchange")
    letter, entries = death.get("routing-keys", ("V", None))
    keys = [_decoded(key) for kind, key in entries if kind == "S"] if letter == "A" else []
    if exchange is None or not keys:
        return None
    return Route(exchange, keys[0], tuple(keys[1:]))


def _text(table: Table, name: str) -> str | None:
    letter, value = table.get(name, ("V", None))
    return _decoded(value) if letter == "S" else None


def _decoded(octets: bytes) -> str:
    return octets.decode("utf-8", "backslashreplace")


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _number(msg_id: bytes) -> int:
    """Return a message's number from its id: the last eight bytes."""
    return int.from_bytes(msg_id[8:])


def headers_of_words(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse ``NAME=VALUE``; OptionError: a word has another form."""
    pairs = []
    for word in words:
        name, separator, value = word.partition("=")
        if not name or not separator:
            raise OptionError(f"header {word!r} is not NAME=VALUE")
        pairs.append((name, value))
    return tuple(pairs)
