"""Replays by the local engine, into a Leveret.

Tests: spark/jobs/destinations.py, spark/jobs/publishing.py, spark/jobs/replay/plan.py,
    spark/jobs/replay/routes.py
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leveret.amqp.properties import decode_properties
from leveret.core.errors import ConfigError, StoreError
from leveret.spark import Replay, Rewrite, Selection, replay
from leveret.spark.jobs.report import JobReport
from leveret.spark.publish.errors import LedgerError, Unroutable
from leveret.testing.vhost import FreshVhost
from rigs.spark.jobs import dead_letters, declare, message, retained, stored, stored_snapshot
from rigs.spark.snapshots import snapshot_of
from rigs.wire.scripted_broker import scripted

TO_Q = Rewrite(exchange="", routing_key="q")


def job(path: Path, broker: FreshVhost | None = None, **more: Any) -> Replay:
    """A replay into queue ``q``, unless it is said otherwise."""
    rewrite = more.pop("rewrite", TO_Q)
    write = more.pop("write", {})
    given = {name: more.pop(name) for name in ("publishers", "order") if name in more}
    to = {"uri": broker.url} if broker else {}
    return Replay(Selection((str(path),), **more), rewrite, to | write, **given)


def numbers(broker: FreshVhost, queue: str = "q") -> list[int]:
    return [int(body) for body in broker.queue(queue).bodies]


def counts(report: JobReport) -> dict[str, float]:
    return {name: value for name, value in report.counts.items() if value and name != "seconds"}


def test_messages_are_replayed_queue_by_queue_in_their_order(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q")
    seen: list[tuple[str, int, int]] = []

    report = replay(
        job(stored_snapshot(tmp_path / "data"), amqp_broker), progress=lambda *how: seen.append(how)
    )

    assert numbers(amqp_broker) == [*range(0, 60, 2), *range(1, 60, 2)]
    assert counts(report) == {"selected": 60, "body_bytes": 110, "sent": 60}
    assert (report.exit_code, report.engine, report.warnings) == (0, "local", [])
    assert seen[-1] == ("messages", 60, 60)


def test_a_message_that_is_not_changed_keeps_exchange_key_and_every_byte_of_its_properties(
    tmp_path: Path,
) -> None:
    path = stored_snapshot(tmp_path / "data", 12)
    with scripted() as broker:
        uri = {"uri": broker.uri}
        replay(Replay(Selection((str(path),)), Rewrite(has_marks=False), uri))

    expected = [message(number) for number in (*range(0, 12, 2), *range(1, 12, 2))]
    assert [(found[0], found[1][12:], found[2]) for found in broker.messages] == [
        (origin, head[12:], body) for origin, head, body in expected
    ]


def test_marks_say_where_a_message_was_and_count_its_replays(tmp_path: Path) -> None:
    path = stored_snapshot(tmp_path / "data", 4)
    change = Rewrite(set_headers=(("why", "tëst"),), remove_headers=("d",), strip_expiration=True)
    with scripted() as broker:
        replay(Replay(Selection((str(path),), queues=("east",)), change, {"uri": broker.uri}))

    first, second = (decode_properties(head) for _, head, _ in broker.messages)
    assert first.expiration is None
    assert first.message_id == "m0"
    assert first.headers is not None
    assert second.headers is not None
    assert list(first.headers) == ["n", "x-replayed-from", "x-replay-id", "x-replay-count", "why"]
    assert first.headers["n"] == ("I", 0)
    assert first.headers["why"] == ("S", "tëst".encode())
    assert first.headers["x-replayed-from"] == ("S", b"//east")
    assert first.headers["x-replay-count"] == ("l", 1)
    store, queue_no, _ = first.headers["x-replay-id"][1].decode().split("/")
    assert (len(store), queue_no) == (32, "1")
    assert first.headers["x-replay-id"] != second.headers["x-replay-id"]


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({"queues": ("w*",)}, [*range(1, 60, 2)]),
    ({"vhosts": ("[/]",), "queues": ("?ast",)}, [*range(0, 60, 2)]),
    ({"routing_keys": ("key.[01]",), "queues": ("east",)}, [*range(0, 60, 10), *range(6, 60, 10)]),
    ({"routing_keys": ("*.4", "nothing"), "queues": ("west",)}, [*range(9, 60, 10)]),
    ({"since": "1700000002000", "until": "2023-11-14T22:13:24", "queues": ("east",)}, [*range(20, 40, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), FILTERS)
def test_filters_choose_messages_and_a_dry_run_counts_the_same(
    amqp_broker: FreshVhost, tmp_path: Path, given: dict[str, Any], wanted: list[int]
) -> None:
    declare(amqp_broker, "q")
    path = stored_snapshot(tmp_path / "data")

    dry = replay(job(path, **given), is_dry_run=True)
    report = replay(job(path, amqp_broker, **given))

    assert sorted(numbers(amqp_broker)) == sorted(wanted)
    assert report.counts["sent"] == report.counts["selected"] == len(wanted)
    for name in ("selected", "body_bytes", "left_out"):
        assert dry.counts[name] == report.counts[name]


def test_a_dry_run_counts_destinations_and_says_how_long_it_would_take(tmp_path: Path) -> None:
    path = stored_snapshot(tmp_path / "data")

    report = replay(job(path, rewrite=Rewrite()), is_dry_run=True)
    limited = replay(job(path, write={"maxRate": "10"}, rewrite=Rewrite()), is_dry_run=True)

    found = report.details["destinations"]
    assert found[0] == {
        "exchange": "orders",
        "routing_key": "key.0",
        "messages": 12,
        "body_bytes": 22,
    }
    assert [each["routing_key"] for each in found] == [f"key.{number}" for number in range(5)]
    assert report.counts["destinations"] == 5
    assert report.is_dry_run
    assert "assumes" in report.warnings[0]
    assert (limited.counts["duration_s"], limited.warnings) == (6, [])


@pytest.mark.parametrize("order", ["queue", "none"])
def test_several_publishers_send_each_message_once(
    amqp_broker: FreshVhost, tmp_path: Path, order: str
) -> None:
    declare(amqp_broker, "q")
    path = stored_snapshot(tmp_path / "data", levels=2)
    ledger = str(tmp_path / "ledger")
    given = {"publishers": 3, "order": order, "write": {"ledger": ledger}}

    report = replay(job(path, amqp_broker, **given))
    again = replay(job(path, amqp_broker, **given))

    found = numbers(amqp_broker)
    assert sorted(found) == [*range(60)]
    if order == "queue":
        west = [number for number in found if number % 2]
        assert west == sorted(west)
    assert (report.counts["sent"], again.counts["sent"], again.counts["skipped"]) == (60, 0, 60)


def test_a_replay_that_failed_goes_on_behind_its_ledger(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    path = stored_snapshot(tmp_path / "data")
    declare(amqp_broker, "east", "west")
    write = {"ledger": str(tmp_path / "ledger"), "ledgerStep": "5", "window": "1"}
    given: dict[str, Any] = {"rewrite": Rewrite(exchange="by-key"), "write": write}
    declare(amqp_broker, **{"by-key": []})

    with pytest.raises(Unroutable, match=r"seq_id .*sent=0"):
        replay(job(path, amqp_broker, **given))
    declare(amqp_broker, **{"by-key": ["q"]})
    report = replay(job(path, amqp_broker, **given))

    assert json.loads((tmp_path / "ledger/report.json").read_text())["sent"] == 60
    assert sorted(numbers(amqp_broker)) == [*range(60)]
    assert report.counts["sent"] == 60
    with pytest.raises(LedgerError, match="belongs to another job"):
        replay(job(path, amqp_broker, **given, queues=("east",)))


def test_the_first_publisher_that_fails_stops_the_others(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    path = stored_snapshot(tmp_path / "data")
    declare(amqp_broker, orders=[])

    with pytest.raises(Unroutable):
        replay(job(path, amqp_broker, rewrite=Rewrite(), publishers=4))


def test_dead_letters_go_back_to_where_they_died_first(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    path = dead_letters(tmp_path / "data")
    declare(amqp_broker, orders=["q"])
    change = Rewrite(to_original=True, reset_death=True)

    report = replay(job(path, amqp_broker, rewrite=change, queues=("dead",)))
    dry = replay(job(path, rewrite=change, queues=("dead",)), is_dry_run=True)

    found = {each.body: each for each in amqp_broker.queue("q").messages()}
    keys = {body: each.routing_key for body, each in found.items()}
    assert keys == {b"once": "eu.1", b"copied": "eu.3", b"cycle": "eu.2"}
    assert found[b"copied"].headers["CC"] == ["eu.4"]
    assert not any(
        name.startswith("x-first") or name == "x-death" for name in found[b"cycle"].headers
    )
    assert counts(report) == {"selected": 3, "body_bytes": 15, "left_out": 1, "sent": 3}
    assert report.exit_code == 1
    assert report.warnings == [
        "1 messages have no x-death that names exchange and routing key, and are left out"
    ]
    assert report.details["left_out"][0]["queue"] == "dead"
    assert dry.warnings[-1:] == report.warnings
    destinations = [(each["exchange"], each["routing_key"]) for each in dry.details["destinations"]]
    assert destinations == [("orders", "eu.1"), ("orders", "eu.2"), ("orders", "eu.3")]


def test_settled_messages_are_replayed_from_the_archive_in_the_order_of_their_numbers(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q")
    rig = stored(tmp_path / "data", 20)
    rig.open()
    keys = sorted(key for key in rig.written if key[0] == 1)
    rig.ack(keys[2:7])
    rig.stop()
    path = retained(snapshot_of(rig.data), "east")
    given: dict[str, Any] = {"view": "archive", "write": {"ledger": str(tmp_path / "ledger")}}

    report = replay(job(path, amqp_broker, **given))
    again = replay(job(path, amqp_broker, **given))
    acked = replay(job(path, amqp_broker, view="archive", state="acked"))

    assert numbers(amqp_broker)[:10] == [*range(0, 20, 2)]
    assert (report.counts["sent"], again.counts["sent"]) == (10, 0)
    assert numbers(amqp_broker)[10:] == [4, 6, 8, 10, 12]
    assert acked.counts["sent"] == 5


def test_what_cannot_be_read_is_an_error_or_left_out_and_reported(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q")
    path = stored_snapshot(tmp_path / "data")
    replay(job(path), is_dry_run=True)  # makes the locators
    segment = sorted(path.glob("vhosts/*/rdq/*"))[2]
    segment.unlink()
    wanted = job(path, amqp_broker)

    with pytest.raises(StoreError, match="the segment is missing"):
        replay(wanted)
    kept = Counter(numbers(amqp_broker))
    selection = replace(wanted.selection, fail_on_data_loss=False)
    report = replay(replace(wanted, selection=selection))

    assert report.counts["unreadable"] > 0
    assert report.counts["sent"] + report.counts["unreadable"] == 60
    assert report.exit_code == 1
    assert "cannot be read" in report.warnings[0]
    assert (Counter(numbers(amqp_broker)) - kept).total() == report.counts["sent"]


def test_a_rate_holds_for_all_publishers_together(amqp_broker: FreshVhost, tmp_path: Path) -> None:
    declare(amqp_broker, "q")
    path = stored_snapshot(tmp_path / "data", 30)

    report = replay(job(path, amqp_broker, publishers=2, write={"maxRate": "100"}))

    assert report.counts["seconds"] >= 14 / 50


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda path: job(path, where="true"), "where is SQL"),
        (lambda path: job(path, order="key"), "order 'key' is unknown"),
        (lambda path: job(path, write={"routingKey": "q"}), "the replay's own"),
        (lambda path: job(path, view="index"), "has no messages"),
        (lambda path: job(path, write={"colour": "red"}), "unknown write option"),
        (lambda path: job(path, rewrite=Rewrite(exchange="e", to_original=True)), "leave exchange"),
        (lambda path: job(path, state="gone"), "state 'gone' is unknown"),
        (lambda path: Replay(Selection(())), "no snapshot is given"),
        (lambda path: job(path / "nowhere"), "does not exist"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(
    tmp_path: Path, wrong: Any, text: str
) -> None:
    path = stored_snapshot(tmp_path / "data", 2)
    to = {"uri": "amqp://127.0.0.1:1"}

    def made_and_run() -> None:
        made = wrong(path)
        replay(replace(made, write=to | dict(made.write)))

    with pytest.raises(ConfigError, match=text):
        made_and_run()
