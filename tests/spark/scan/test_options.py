"""Options of reading: what is accepted, and what is refused with which text.

Tests: spark/scan/locators.py, spark/scan/pruning.py
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from leveret.spark.errors import OptionError
from leveret.spark.scan.locators import ACKED, READY
from leveret.spark.scan.options import (
    EARLIEST,
    KNOWN,
    LATEST,
    OF_VIEW,
    ReadOptions,
    StreamOptions,
    paths_of,
)
from leveret.spark.scan.pruning import ALL, Names
from leveret.spark.scan.schema import VIEWS, columns_of

MS = 1_764_053_563_000  # 2025-11-25T06:52:43Z


def parsed(**options: str) -> ReadOptions:
    return ReadOptions.of({"path": "/s", **options})


def values(found: ReadOptions | StreamOptions) -> dict[str, Any]:
    """Return all fields, those of ``Reading`` among them."""
    return {
        each.name: getattr(part, each.name)
        for part in (found, found.reading)
        for each in fields(part)
    }


ACCEPTED: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"paths": ("/s",), "view": "messages", "columns": None, "verify_crc": True}),
    ({"paths": '["/a", "/b"]'}, {"paths": ("/s", "/a", "/b")}),
    ({"COLUMNS": "body, queue"}, {"columns": ("body", "queue")}),
    ({"columns": '["body"]'}, {"columns": ("body",)}),
    ({"minpartitions": "7"}, {"min_partitions": 7}),
    ({"maxPartitionBytes": "64m"}, {"partition_bytes": 64 << 20}),
    ({"maxPartitionBytes": "1GiB"}, {"partition_bytes": 1 << 30}),
    ({"batchBytes": "1000", "batchRows": "5"}, {"batch_bytes": 1000, "batch_rows": 5}),
    ({"verifycrc": "FALSE", "failOnDataLoss": "false"}, {"verify_crc": False, "fail_on_data_loss": False}),
]  # fmt: skip
PRUNED: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"startingTimestamp": str(MS)}, {"times_ms": (MS, None)}),
    ({"startingTimestamp": "2025-11-25T06:52:43Z"}, {"times_ms": (MS, None)}),
    ({"startingTimestamp": "2025-11-25 07:52:43.0001+01:00"}, {"times_ms": (MS + 1, None)}),
    ({"endingTimestamp": "2025-11-25T06:52:43"}, {"times_ms": (None, MS)}),
    ({"queue": "a,b*"}, {"queues": (Names(frozenset({"a"}), ("b*",)),)}),
    ({"queue": '["a,b"]'}, {"queues": (Names(frozenset({"a,b"}), ()),)}),
    ({"vhost": "/"}, {"vhosts": (Names(frozenset({"/"}), ()),)}),
    ({"startingSeqIds": '{"q": 5}', "endingSeqIds": '{"q": 9}'}, {"queue_seqs": {"q": (5, 9)}}),
    ({"startingSeqIds": '{"/": {"q": 5}}'}, {"queue_seqs": {("/", "q"): (5, None)}}),
    ({"state": "ready,acked"}, {"states": frozenset({READY, ACKED})}),
    ({}, {"times_ms": ALL, "seqs": ALL, "states": None, "queues": ()}),
]
REFUSED = [
    ({"quue": "x"}, "option 'quue' is unknown; did you mean queue?"),
    ({"xyzzy": "x"}, "option 'xyzzy' is unknown; known are path, paths, view"),
    ({"view": "queus"}, "view 'queus' is unknown; there are messages, archive, index"),
    ({"view": "segments", "queue": "q"}, "option queue has no effect on view segments"),
    ({"view": "index", "verifyCrc": "true"}, "option verifyCrc has no effect on view index"),
    ({"view": "records", "state": "ready"}, "option state has no effect on view records"),
    ({"paths": "a,b"}, "option paths is not JSON"),
    ({"paths": '["", "b"]'}, "no path is given"),
    ({"columns": ""}, "option columns is empty"),
    ({"queue": "[]"}, "option queue is empty"),
    ({"queue": "[1]"}, "it must be a list of texts"),
    ({"minPartitions": "0"}, "option minPartitions is '0', it must be a number from 1 to 1000000"),
    ({"maxPartitionBytes": "12x"}, "option maxPartitionBytes is '12x', it must be a number of bytes"),
    ({"maxPartitionBytes": "m"}, "must be a number of bytes"),
    ({"batchBytes": "2g"}, "must be a number of bytes up to 1073741824"),
    ({"verifyCrc": "yes"}, "option verifyCrc is 'yes', it must be true or false"),
    ({"startingTimestamp": "yesterday"}, "it must be ms since 1970 or a time as"),
    ({"startingTimestamp": "2", "endingTimestamp": "1"}, "endingTimestamp is earlier than"),
    ({"startingSeqIds": "[5]"}, 'it must be {"queue": seq}'),
    ({"startingSeqIds": '{"q": "5"}'}, "has '5' for 'q', it must be a seq_id"),
    ({"endingSeqIds": '{"/": {"q": -1}}'}, "it must be a seq_id"),
    ({"state": "unacked"}, "state 'unacked' is unknown; there are ready, acked"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "wanted"), ACCEPTED)
def test_options_are_parsed_once_whatever_the_case_of_their_names(
    options: dict[str, str], wanted: dict[str, Any]
) -> None:
    found = parsed(**options)

    assert {name: values(found)[name] for name in wanted} == wanted


@pytest.mark.parametrize(("options", "wanted"), PRUNED)
def test_options_that_rule_out_rows(options: dict[str, str], wanted: dict[str, Any]) -> None:
    found = parsed(**options).pruning

    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_is_wrong_with_an_option_is_said(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(**options)

    assert why in str(caught.value)


def test_a_path_is_needed() -> None:
    with pytest.raises(OptionError, match="no path is given"):
        ReadOptions.of({})


def test_every_option_has_an_effect_on_some_view() -> None:
    assert set(OF_VIEW) == set(VIEWS)
    assert {"queue", "startingSeqIds", "verifyCrc"} <= set(KNOWN)


def test_columns_of_another_view_are_refused() -> None:
    with pytest.raises(OptionError, match="view queues has no column 'body'"):
        columns_of("queues", ("body",))


STREAMED: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"starting": EARLIEST, "max_rows": None, "max_bytes": None, "fail_on_data_loss": True}),
    ({"startingOffsets": "Latest"}, {"starting": LATEST}),
    ({"startingOffsets": '{"/": {"segment": 1}}'}, {"starting": {"/": {"segment": 1}}}),
    ({"startingTimestamp": "2025-11-25T06:52:43Z"}, {"starting": MS}),
    ({"maxRowsPerTrigger": "5", "maxBytesPerTrigger": "1k"}, {"max_rows": 5, "max_bytes": 1024}),
    ({"queue": "a*", "failondataloss": "false"}, {"fail_on_data_loss": False}),
]
NOT_STREAMED = [
    ({"maxRowsPerTriger": "5"}, "did you mean maxRowsPerTrigger?"),
    ({"view": "archive"}, "option view has no effect on a stream"),
    ({"state": "acked"}, "option state has no effect on a stream"),
    ({"endingTimestamp": "5"}, "from a data directory only streams read"),
    ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger is '0', it must be a number of bytes"),
    ({"startingOffsets": "[]"}, 'it must be earliest, latest or {"store_id or vhost"'),
    ({"startingOffsets": '{"/": 5}'}, 'it must be earliest, latest or {"store_id or vhost"'),
    ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "both say where to begin: set one"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), STREAMED)
def test_options_of_a_stream_become_values(
    options: dict[str, str], expected: dict[str, Any]
) -> None:
    found = StreamOptions.of({"path": "/d", **options})

    assert {name: values(found)[name] for name in expected} == expected
    assert found.pruning.wants_queue("a1")
    assert found.pruning.wants_queue("b") != ("queue" in options)


@pytest.mark.parametrize(("options", "why"), NOT_STREAMED)
def test_what_has_no_effect_on_a_stream_is_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as caught:
        StreamOptions.of({"path": "/d", **options})

    assert why in str(caught.value)


def test_options_of_streams_have_no_effect_on_snapshots() -> None:
    with pytest.raises(OptionError, match="option startingOffsets has no effect on view messages"):
        parsed(startingOffsets="latest")


def test_paths_are_found_among_any_options() -> None:
    assert paths_of({"PATH": "/a", "paths": '["/b"]', "xyzzy": "x"}) == ("/a", "/b")
