"""The options of a write: their names, values and defaults; docs/spark-sink.md has the table.

Options arrive as text under lower-cased names. Each is checked once, here; one that is unknown, or that would
have no effect beside the others, is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from leveret.core.limits import SHORTSTR_BYTES_MAX
from leveret.spark.errors import OptionError
from leveret.spark.publish.target import Tls, UriSource

FAIL: Final = "fail"
DEADLETTER: Final = "deadletter"
DROP: Final = "drop"
RETRY: Final = "retry"
NONE: Final = "none"
MESSAGE_ID: Final = "message_id"
PRODUCER: Final = "producer"

_PRODUCER_ID_BYTES_MAX: Final = 128  # leaves room for the partition and the source queue
_RETRIES_MAX: Final = 100
_RETRY_FORM: Final = re.compile(r"retry\((\d{1,3})\)")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one job.

    Attributes:
        exchange: of rows that have none; None: each row must have one. ``routing_key`` likewise.
        publishers: the most partitions that may publish at once; 0: not said.
        rate_per_s: messages per second of the whole job; 0 is no limit.
        window: unconfirmed messages per partition.
        on_nack: ``retry``, ``deadletter`` or ``fail``; ``retries`` is the n of ``retry(n)``.
        dead_letter_exchange: None: there is none. ``""`` is the default exchange.
        ledger: the ledger's folder; empty: none.
        ledger_step: rows between two places in the input that the ledger can name.
        plan: text that says what the rows are; another text under the same ledger is refused.
    """

    uri: UriSource
    tls: Tls = field(default_factory=Tls)
    exchange: str | None = None
    routing_key: str | None = None
    publishers: int = 0
    rate_per_s: float = 0.0
    window: int = 2_000
    confirm_timeout_s: float = 60.0
    blocked_timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    mandatory: bool = True
    on_unroutable: str = FAIL
    on_nack: str = FAIL
    retries: int = 0
    dead_letter_exchange: str | None = None
    ledger: str = ""
    ledger_step: int = 1_000
    plan: str = ""
    dedup: str = NONE
    producer_id: str = ""
    producer_epoch: int = 0
    ignore_unknown_columns: bool = False

    @property
    def needs_order(self) -> bool:
        """Whether the keys must rise, because rows are skipped by them or numbered by them."""
        return bool(self.ledger) or self.dedup == PRODUCER

    def fingerprint(self, target: str) -> str:
        """Return a digest of all that decides which messages a ledger's job sends where."""
        said = [
            self.plan, target, self.exchange, self.routing_key, self.dead_letter_exchange,
            self.on_unroutable, self.on_nack, self.dedup, self.producer_id, self.producer_epoch,
            self.ledger_step,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def parse(options: Mapping[str, str]) -> WriteOptions:
    """Return the options; names in any case.

    Raises:
        OptionError: one is unknown, has a wrong value, or has no effect.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    given.pop(
        "path", None
    )  # Spark adds it to ``save()`` under some catalogs; it names nothing here
    unknown = sorted(given.keys() - _OPTIONS.keys())
    if unknown:
        known = ", ".join(sorted(name for name, *_ in _OPTIONS.values()))
        raise OptionError(f'unknown write option "{unknown[0]}"; known are {known}')
    values: dict[str, Any] = {}
    for key, text in given.items():
        name, attribute, convert = _OPTIONS[key]
        values[attribute] = convert(name, text)
    on_nack = values.get("on_nack")
    if on_nack:
        values["on_nack"], values["retries"] = on_nack
    uri = _part(values, "uri.")
    tls = _part(values, "tls.")
    made = WriteOptions(uri=UriSource(**uri), tls=Tls(**tls), **values)
    _check(made, given)
    return made


def _part(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Take the attributes of one part out of the values."""
    names = [name for name in values if name.startswith(prefix)]
    return {name.removeprefix(prefix): values.pop(name) for name in names}


def _check(made: WriteOptions, given: Mapping[str, str]) -> None:
    """Refuse combinations in which an option has no effect, or which would lose messages."""
    wrong = [text for is_wrong, text in _rules(made, given) if is_wrong]
    if wrong:
        raise OptionError(wrong[0])


def _rules(made: WriteOptions, given: Mapping[str, str]) -> list[tuple[bool, str]]:
    letters = DEADLETTER in {made.on_unroutable, made.on_nack}
    has_dlx = made.dead_letter_exchange is not None
    is_producer = made.dedup == PRODUCER
    return [
        (
            not made.mandatory and "onunroutable" in given,
            "onUnroutable has no effect with mandatory=false, which has the broker drop such messages silently",
        ),
        (
            letters and not has_dlx and not made.ledger,
            "deadletter needs deadLetterExchange, or a ledger for the reject files",
        ),
        (
            has_dlx and not letters,
            "deadLetterExchange has no effect: set onUnroutable or onNack to deadletter",
        ),
        (
            made.rate_per_s > 0 and not made.publishers,
            "maxRate is for the whole job: give publishers, the number of partitions it is divided by"
            " (and repartition the data to it)",
        ),
        (
            is_producer and made.on_nack == RETRY,
            "dedup=producer does not go with onNack=retry: a later sequence number may be in the queue by then,"
            " and the message sent again would be taken for a duplicate",
        ),
        (
            ("producerid" in given or "producerepoch" in given) and not is_producer,
            "producerId and producerEpoch have no effect without dedup=producer",
        ),
        (
            ("ledgerstep" in given or "plan" in given) and not made.ledger,
            "ledgerStep and plan have no effect without ledger",
        ),
        (bool(made.tls.key) and not made.tls.cert, "tls.key has no effect without tls.cert"),
        (
            not made.tls.verify and bool(made.tls.ca or made.tls.server_name),
            "tls.ca and tls.serverName have no effect with tls.verify=false",
        ),
    ]


def _text(name: str, text: str) -> str:
    if not text:
        raise OptionError(f"option {name} is empty")
    return text


def _name(name: str, text: str) -> str:
    size = len(text.encode())
    if size > SHORTSTR_BYTES_MAX:
        raise OptionError(f"option {name} has {size} bytes; AMQP allows {SHORTSTR_BYTES_MAX}")
    return text


def _producer_id(name: str, text: str) -> str:
    size = len(_text(name, text).encode())
    if size > _PRODUCER_ID_BYTES_MAX:
        raise OptionError(f"option {name} has {size} bytes; at most {_PRODUCER_ID_BYTES_MAX}")
    return text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise OptionError(f'option {name} is "{text}"; allowed: true, false')
    return text.lower() == "true"


def _count(least: int, most: int) -> Callable[[str, str], int]:
    def convert(name: str, text: str) -> int:
        if not re.fullmatch(r"\d{1,19}", text) or not least <= int(text) <= most:
            raise OptionError(f'option {name} is "{text}"; allowed: {least} to {most}')
        return int(text)

    return convert


def above_zero(name: str, text: str) -> float:
    """Return an option's number; OptionError: it is none, or not above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise OptionError(f'option {name} is "{text}"; it must be a number above 0')
    return number


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def convert(name: str, text: str) -> str:
        if text not in allowed:
            raise OptionError(f'option {name} is "{text}"; allowed: {", ".join(allowed)}')
        return text

    return convert


def _on_nack(name: str, text: str) -> tuple[str, int]:
    retry = _RETRY_FORM.fullmatch(text)
    if retry and 1 <= int(retry[1]) <= _RETRIES_MAX:
        return RETRY, int(retry[1])
    if text not in {DEADLETTER, FAIL}:
        raise OptionError(
            f'option {name} is "{text}"; allowed: retry(n) with n from 1 to {_RETRIES_MAX},'
            f" {DEADLETTER}, {FAIL}"
        )
    return text, 0


_S64_MAX: Final = (1 << 63) - 1
# Name, attribute (of a part: with its prefix), conversion.
_TABLE: Final[tuple[tuple[str, str, Callable[[str, str], Any]], ...]] = (
    ("uri", "uri.uri", _text),
    ("uriFile", "uri.file", _text),
    ("uriEnv", "uri.environment", _text),
    ("uriConf", "uri.conf", _text),
    ("tls.ca", "tls.ca", _text),
    ("tls.cert", "tls.cert", _text),
    ("tls.key", "tls.key", _text),
    ("tls.verify", "tls.verify", _flag),
    ("tls.serverName", "tls.server_name", _text),
    ("exchange", "exchange", _name),
    ("routingKey", "routing_key", _name),
    ("publishers", "publishers", _count(1, 10_000)),
    ("maxRate", "rate_per_s", above_zero),
    ("window", "window", _count(1, 1_000_000)),
    ("confirmTimeout", "confirm_timeout_s", above_zero),
    ("blockedTimeout", "blocked_timeout_s", above_zero),
    ("connectTimeout", "connect_timeout_s", above_zero),
    ("mandatory", "mandatory", _flag),
    ("onUnroutable", "on_unroutable", _one_of(FAIL, DEADLETTER, DROP)),
    ("onNack", "on_nack", _on_nack),
    ("deadLetterExchange", "dead_letter_exchange", _name),
    ("ledger", "ledger", _text),
    ("ledgerStep", "ledger_step", _count(1, 1_000_000)),
    ("plan", "plan", _text),
    ("dedup", "dedup", _one_of(NONE, MESSAGE_ID, PRODUCER)),
    ("producerId", "producer_id", _producer_id),
    ("producerEpoch", "producer_epoch", _count(0, _S64_MAX)),
    ("ignoreUnknownColumns", "ignore_unknown_columns", _flag),
)
_OPTIONS: Final = {row[0].lower(): row for row in _TABLE}
