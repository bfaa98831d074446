"""Dead letters by group, and the commands that replay them.

Tests: spark/jobs/dead_letters/groups.py, spark/jobs/dead_letters/in_both.py
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from leveret.server.cli.main import main
from leveret.spark import Dlq, Selection, dlq
from leveret.spark.errors import NothingSelected
from leveret.spark.jobs.dead_letters import groups as dead_letter_groups
from leveret.spark.jobs.dead_letters.groups import DeadLetterGroups, shown
from leveret.testing.vhost import FreshVhost
from rigs.spark.jobs import dead_letters, declare, letters_under_way


def death(queue: str, reason: str = "rejected", count: int = 1, **more: Any) -> dict[str, Any]:
    found = {"queue": queue, "reason": reason, "exchange": "x", "routing_keys": ["k"], "time": None}
    return found | {"count": count} | more


class Batch:
    """What the groups need of a record batch."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        plain = {"vhost": "/", "queue": "dead", "routing_key": "r", "body_size": 2, "body": b"ab"}
        plain |= {"properties": None, "x_death": None}
        return [plain | row for row in self._rows]


def test_letters_are_grouped_by_their_latest_death(tmp_path: Path) -> None:
    path = str(dead_letters(tmp_path / "data"))

    report = dlq(Dlq(Selection((path,), queues=("dead",))))

    counts = {"dead_letters": 3, "not_dead": 1, "groups": 1, "maybe_in_both": 0}
    assert report.counts == counts
    assert report.warnings == []
    (group,) = report.details["groups"]
    names = [group[name] for name in ("vhost", "queue", "reason", "died_in", "exchange")]
    assert names == ["/", "dead", "rejected", "work", "orders"]
    assert (group["messages"], group["body_bytes"]) == (3, 15)
    assert group["deaths"] == {"1": 2, "2": 1}
    assert group["top_keys"] == {"eu.1": 1, "eu.2": 1, "eu.3": 1}
    assert sorted(group["samples"]) == ["copied", "cycle", "once"]
    assert sum(group["hours"].values()) == 3
    with pytest.raises(NothingSelected, match="there are: reason 'rejected' queue 'work'"):
        dlq(Dlq(Selection((path,), queues=("dead",), death_reason="expired")))


def test_a_letter_that_its_source_still_has_is_told(tmp_path: Path) -> None:
    path = str(letters_under_way(tmp_path / "data"))

    report = dlq(Dlq(Selection((path,))))

    assert report.counts["dead_letters"] == 3  # ``again`` has died in ``first`` before
    assert report.counts["not_dead"] == 2
    assert report.counts["maybe_in_both"] == 2
    assert report.warnings[0].startswith("2 letters may be in the queue they died in as well")


def row(queue: str, *deaths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"queue": queue, "x_death": list(deaths)} | more


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("w"), row("dead", death("w"))], 1),
        ([row("w"), row("w"), row("dead", death("w"))], 1),
        ([row("w"), row("dead", death("w")), row("dead", death("w"))], 1),
        ([row("w", death("v")), row("dead", death("w"), death("v"))], 1),
        ([row("w", death("w"), death("v")), row("dead", death("w", count=2), death("v"))], 1),
        ([row("w", properties={"expiration": "5", "message_id": "m"}),
          row("dead", death("w"), properties={"expiration": None, "message_id": "m"})], 1),
        ([row("w", body=b"other"), row("dead", death("w"))], 0),
        ([row("v"), row("dead", death("w"))], 0),
        ([row("w", vhost="another"), row("dead", death("w"))], 0),
        ([row("w", death("v", count=2)), row("dead", death("w"), death("v"))], 0),
        ([row("w", properties={"message_id": "m"}),
          row("dead", death("w"), properties={"message_id": "n"})], 0),
        ([row("dead", death("w")), row("dead", death("w"))], 0),
    ],
)  # fmt: skip
def test_a_message_in_a_queue_is_what_died_there_if_nothing_tells_them_apart(
    rows: list[dict[str, Any]], expected: int
) -> None:
    whole, merged = DeadLetterGroups(), DeadLetterGroups()
    whole.add(Batch(*rows))
    for each in rows:
        part = DeadLetterGroups()
        part.add(Batch(each))
        merged.merge(part.pack())

    assert whole.in_both.count() == merged.in_both.count() == expected


def test_the_command_of_a_group_sends_its_letters_back(
    amqp_broker: FreshVhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(amqp_broker, orders=["q"])
    place = f"amqp://{amqp_broker.host}:{amqp_broker.port}"
    path = dead_letters(tmp_path / "data dir")
    report = dlq(Dlq(Selection((str(path),), queues=("dead",)), place))
    sent = 0

    for group in report.details["groups"]:
        words = shlex.split(group["command"])
        assert words[:2] == ["leveret", "replay"]
        words[words.index("--target") + 1] = f"{place}/{amqp_broker.vhost}"
        assert main(words[1:]) == 0
        assert f"selected: {group['messages']}\n" in capsys.readouterr().out
        sent += group["messages"]

    assert sent == amqp_broker.queue("q").depth == 3


def test_names_are_quoted_for_a_shell_and_for_globs() -> None:
    job = Dlq(Selection(("it's/a path",)), "amqp://h")
    group = dead_letter_groups.GroupName("a/b", "q*", "rejected", "w $(rm)", "")

    words = shlex.split(command := dlq_command(job, group))

    assert words[2] == "it's/a path"
    assert words[words.index("--queue") + 1] == "q[*]"
    assert words[words.index("--death-queue") + 1] == "w $(rm)"
    assert words[words.index("--death-exchange") + 1] == ""
    assert words[-1] == "amqp://h/a%2Fb"
    assert "'w $(rm)'" in command


def dlq_command(job: Dlq, group: dead_letter_groups.GroupName) -> str:
    from leveret.spark.jobs.dead_letters.dlq import command

    return command(job, group)


def test_parts_that_are_merged_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_groups, "_GROUPS_MAX", 3)
    rows = [
        {"x_death": [death(f"w{number % 5}", count=number % 2 + 1)], "body": b"%d" % number}
        for number in range(20)
    ]
    whole, merged = DeadLetterGroups(), DeadLetterGroups()
    whole.add(Batch(*rows, {"x_death": None}))
    for start in (0, 10):
        part = DeadLetterGroups()
        part.add(Batch(*rows[start : start + 10]))
        merged.merge(part.pack())
    merged.add(Batch({"x_death": []}))

    assert merged.rows() == whole.rows()
    assert (merged.not_dead, len(merged.groups)) == (1, 4)
    others, row = merged.rows()[0]
    assert dead_letter_groups.is_others(others)
    assert row["messages"] == 8
    assert merged.rows()[1][1]["deaths"] == {"1": 2, "2": 2}


def test_keys_beyond_the_ceiling_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_groups, "_KEYS_MAX", 2)
    groups = DeadLetterGroups()
    for key in ("a", "b", "c", "d", "a"):
        groups.add(Batch({"x_death": [death("w", routing_keys=[key])]}))

    assert groups.rows()[0][1]["top_keys"] == {"a": 2, "(others)": 2, "b": 1}


def test_a_sample_is_one_line_that_cannot_control_a_terminal() -> None:
    assert shown(b"a\n\x1b[2J\xff") == r"a\n\x1b[2J\xff"
    assert shown(b"x" * 200) == "x" * 120 + "..."
