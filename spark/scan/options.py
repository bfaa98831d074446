"""The options of reading, of snapshots and of streams, parsed once into values.

Spark passes options as texts, with names in lower case. An unknown option, a value of the wrong form, and an option
that the view does not look at are errors: an option that is misspelt must not read other messages than was meant.
docs/spark.md and docs/spark-streaming.md have the tables.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from leveret.spark.errors import OptionError
from leveret.spark.scan.locators import STATES
from leveret.spark.scan.pruning import ALL, Names, Pruning, Range, both
from leveret.spark.scan.schema import VIEWS

MIB: Final = 1 << 20
PARTITION_BYTES: Final = 128 * MIB
BATCH_BYTES: Final = 2 * MIB  # of a size that stays in the caches on its way to Spark
BATCH_ROWS: Final = 8_192
BATCH_BYTES_MAX: Final = 1 << 30  # Arrow's offsets are int32

_EVERYWHERE: Final = ("path", "paths", "view", "columns", "vhost")
_PARTITIONED: Final = ("minPartitions", "maxPartitionBytes", "batchRows", "failOnDataLoss")
_TIMES: Final = ("startingTimestamp", "endingTimestamp")
_ROWS: Final = ("queue", *_TIMES, "startingSeqIds", "endingSeqIds", "state")
_MESSAGES: Final = (*_EVERYWHERE, *_PARTITIONED, *_ROWS, "batchBytes", "verifyCrc")
_STREAM: Final = (
    "path", "paths", "columns", "vhost", "queue", "startingOffsets", "startingTimestamp", "maxRowsPerTrigger",
    "maxBytesPerTrigger", *_PARTITIONED, "batchBytes", "verifyCrc",
)  # fmt: skip
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
OF_VIEW: Final[dict[str, tuple[str, ...]]] = {
    "messages": _MESSAGES,
    "archive": _MESSAGES,
    "index": (*_EVERYWHERE, *_ROWS, "minPartitions", "maxPartitionBytes", "batchRows"),
    "records": (*_EVERYWHERE, *_PARTITIONED, *_TIMES, "batchBytes"),
    "segments": _EVERYWHERE,
    "queues": (*_EVERYWHERE, "queue"),
}
_OF_ALL: Final = (*OF_VIEW.values(), _STREAM)
KNOWN: Final = tuple(dict.fromkeys(name for names in _OF_ALL for name in names))
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows become partitions and record batches, of snapshots and of streams alike.

    Attributes:
        min_partitions: at least so many, if there are as many rows.
        partition_bytes: of segments per partition at most, about; more only for a single message.
        batch_rows, batch_bytes: of a record batch at most; more bytes only for a single message.
        verify_crc: compare the checksum of each record whose content is read.
        fail_on_data_loss: a message that cannot be read is an error; else it is left out.
    """

    min_partitions: int = 1
    partition_bytes: int = PARTITION_BYTES
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    verify_crc: bool = True
    fail_on_data_loss: bool = True

    @classmethod
    def of(cls, words: dict[str, str]) -> Reading:
        """Parse those of the known options that are about it; OptionError: a value is invalid."""
        return cls(
            _number(words, "minPartitions", 1, 1, 1_000_000),
            _size(words, "maxPartitionBytes", PARTITION_BYTES, 1 << 40),
            _number(words, "batchRows", BATCH_ROWS, 1, 1_000_000),
            _size(words, "batchBytes", BATCH_BYTES, BATCH_BYTES_MAX),
            _boolean(words, "verifyCrc", True),
            _boolean(words, "failOnDataLoss", True),
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, and how.

    Attributes:
        paths: snapshots, as paths or ``file:`` URIs.
        view: one of ``schema.VIEWS``.
        columns: names of the columns that are wanted; None: all of the view.
        reading: how rows become partitions and batches.
    """

    paths: tuple[str, ...]
    view: str = "messages"
    columns: tuple[str, ...] | None = None
    pruning: Pruning = field(default_factory=Pruning)
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse options; names in any case.

        Raises:
            OptionError: an option is unknown, has an invalid value, or has no effect on the view.
        """
        words = _known(options)
        view = words.get("view", "messages")
        if view not in VIEWS:
            raise OptionError(f"view {view!r} is unknown; there are {', '.join(VIEWS)}")
        for name in words:
            if name not in OF_VIEW[view]:
                raise OptionError(f"option {name} has no effect on view {view}: leave it out")
        return cls(
            _paths(words),
            view,
            _list(words, "columns"),
            _pruning(words),
            Reading.of(words),
        )


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream reads of archives, and how. Attributes that ``ReadOptions`` has too mean the same.

    Attributes:
        paths: data directories, or stores of vhosts in them.
        starting: ``EARLIEST``, ``LATEST``, a time in ms since 1970, or positions as in ``stream.offsets``, by store or
            vhost; where a query begins that has no checkpoint.
        max_rows, max_bytes: of a micro-batch at most; None: no bound.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    pruning: Pruning = field(default_factory=Pruning)
    starting: str | int | Mapping[str, Any] = EARLIEST
    max_rows: int | None = None
    max_bytes: int | None = None
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StreamOptions:
        """Parse options; names in any case.

        Raises:
            OptionError: an option is unknown, has an invalid value, or has no effect on a stream.
        """
        words = _known(options)
        for name in words:
            if name not in _STREAM:
                raise OptionError(
                    f"option {name} has no effect on a stream, which reads all rows of view archive: leave it out;"
                    " from a data directory only streams read, other queries read a snapshot of it:"
                    " leveret snapshot create NAME"
                )
        names = {name: value for name, value in words.items() if name in {"vhost", "queue"}}
        return cls(
            _paths(words),
            _list(words, "columns"),
            _pruning(names),
            _starting(words),
            _optional(_number, words, "maxRowsPerTrigger", 1, 1 << 40),
            _optional(_size, words, "maxBytesPerTrigger", 1 << 50),
            Reading.of(words),
        )


def _optional(parse: Any, words: dict[str, str], name: str, *bounds: int) -> int | None:
    found: int | None = parse(words, name, 0, *bounds) if name in words else None
    return found


def _starting(words: dict[str, str]) -> str | int | Mapping[str, Any]:
    time_ms = _time(words, "startingTimestamp")
    if "startingOffsets" not in words:
        return EARLIEST if time_ms is None else time_ms
    if time_ms is not None:
        raise OptionError("startingOffsets and startingTimestamp both say where to begin: set one")
    text = words["startingOffsets"].strip()
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    wanted = 'earliest, latest or {"store_id or vhost": {"segment": 12, "byte": 64}}'
    found: Mapping[str, Any] = _json(words, "startingOffsets", wanted, _is_objects)
    return found


def _is_objects(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def _known(options: Mapping[str, str]) -> dict[str, str]:
    by_lower = {name.lower(): name for name in KNOWN}
    words = {}
    for given, value in options.items():
        name = by_lower.get(given.lower())
        if name is None:
            near = difflib.get_close_matches(given.lower(), by_lower, 1)
            hint = f"did you mean {by_lower[near[0]]}?" if near else f"known are {', '.join(KNOWN)}"
            raise OptionError(f"option {given!r} is unknown; {hint}")
        words[name] = value
    return words


def paths_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths that options name, which say whether they are for a batch or a stream; OptionError: none."""
    wanted = {"path", "paths"}
    return _paths({name.lower(): options[name] for name in options if name.lower() in wanted})


def _paths(words: dict[str, str]) -> tuple[str, ...]:
    found = [words["path"]] if words.get("path") else []
    if "paths" in words:
        found += _json(words, "paths", "a list of paths", lambda value: isinstance(value, list))
    if not found or not all(isinstance(path, str) and path for path in found):
        raise OptionError("no path is given: load a snapshot, for example data/snapshots/NAME")
    return tuple(found)


def _list(words: dict[str, str], name: str) -> tuple[str, ...] | None:
    """Return a list: ``a,b``, or JSON where names have commas or spaces at their ends."""
    if name not in words:
        return None
    text = words[name].strip()
    if text.startswith("["):
        found = _json(words, name, "a list of texts", _is_texts)
    else:
        found = [part.strip() for part in text.split(",")]
    if not found or (name == "columns" and "" in found):
        raise OptionError(f"option {name} is empty")
    return tuple(found)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _json(words: dict[str, str], name: str, wanted: str, check: Any) -> Any:
    try:
        value = json.loads(words[name])
    except ValueError as error:
        raise OptionError(f"option {name} is not JSON: {error}") from error
    if not check(value):
        raise OptionError(f"option {name} is {words[name]}, it must be {wanted}")
    return value


def _number(words: dict[str, str], name: str, default: int, low: int, high: int) -> int:
    if name not in words:
        return default
    try:
        value = int(words[name])
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise OptionError(
            f"option {name} is {words[name]!r}, it must be a number from {low} to {high}"
        )
    return value


_UNITS: Final = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}  # fmt: skip


def _size(words: dict[str, str], name: str, default: int, high: int) -> int:
    """Return a number of bytes: ``67108864``, ``64m``, ``64MiB``."""
    if name not in words:
        return default
    text = words[name].strip().lower()
    digits = text.rstrip("kmgib")
    unit = text[len(digits) :]
    try:
        value = int(digits) * (_UNITS[unit] if unit else 1)
    except (ValueError, KeyError):
        value = 0
    if not 0 < value <= high:
        raise OptionError(
            f"option {name} is {words[name]!r}, it must be a number of bytes up to {high}, as 64m"
        )
    return value


def _boolean(words: dict[str, str], name: str, default: bool) -> bool:
    if name not in words:
        return default
    value = _BOOLEANS.get(words[name].lower())
    if value is None:
        raise OptionError(f"option {name} is {words[name]!r}, it must be true or false")
    return value


# Pruning.


def _pruning(words: dict[str, str]) -> Pruning:
    vhosts, queues = _list(words, "vhost"), _list(words, "queue")
    times = _time(words, "startingTimestamp"), _time(words, "endingTimestamp")
    if None not in times and times[0] > times[1]:  # type: ignore[operator]
        raise OptionError("endingTimestamp is earlier than startingTimestamp")
    return Pruning(
        (Names.of(vhosts),) if vhosts is not None else (),
        (Names.of(queues),) if queues is not None else (),
        times,
        ALL,
        _seqs(words),
        _states(_list(words, "state")),
    )


def _time(words: dict[str, str], name: str) -> int | None:
    """Return a time in ms since 1970: a number of ms, or ISO 8601; without a zone it is UTC."""
    if name not in words:
        return None
    text = words[name].strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"option {name} is {text!r}, it must be ms since 1970 or a time as 2026-11-25T06:52:43Z"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    delta = time - datetime(1970, 1, 1, tzinfo=UTC)
    return -(
        -(delta.days * 86_400_000_000 + delta.seconds * 1_000_000 + delta.microseconds) // 1000
    )


def _seqs(words: dict[str, str]) -> dict[str | tuple[str, str], Range]:
    ranges: dict[str | tuple[str, str], Range] = {}
    for name, place in (("startingSeqIds", 0), ("endingSeqIds", 1)):
        if name not in words:
            continue
        wanted = '{"queue": seq} or {"vhost": {"queue": seq}}'
        fields = _json(words, name, wanted, lambda value: isinstance(value, dict))
        for key, value in _flat(name, fields).items():
            own: Range = (value, None) if place == 0 else (None, value)
            ranges[key] = both(ranges.get(key, ALL), own)
    return ranges


def _flat(name: str, fields: dict[str, Any]) -> dict[str | tuple[str, str], int]:
    flat: dict[str | tuple[str, str], int] = {}
    for key, value in fields.items():
        inner = value.items() if isinstance(value, dict) else ((None, value),)
        for queue, seq in inner:
            if type(seq) is not int or seq < 0:
                raise OptionError(f"option {name} has {seq!r} for {key!r}, it must be a seq_id")
            flat[key if queue is None else (key, queue)] = seq
    return flat


def _states(names: Sequence[str] | None) -> frozenset[int] | None:
    if names is None:
        return None
    for name in names:
        if name not in STATES:
            raise OptionError(f"state {name!r} is unknown; there are {', '.join(STATES)}")
    return frozenset(STATES[name] for name in names)
