"""Filters that fit nothing: functions raise, commands exit with 1, with one text that has the names there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leveret.server.cli.main import main
from leveret.spark import Dlq, Export, Replay, Selection, Stats, dlq, export, replay, stats
from leveret.spark.errors import NothingSelected
from leveret.spark.jobs.report import JobReport
from rigs.spark.jobs import stored, stored_snapshot
from rigs.spark.snapshots import snapshot_of

KEYS = "routing keys there are: key.0, key.1, key.2, key.3, key.4"
NAMES: list[tuple[dict[str, Any], str]] = [
    ({"queues": ("eas",)},
     "queue 'eas' fits none of the snapshot; did you mean 'east'? there are: east, west"),
    ({"queues": ("east", "north*")},
     "queue 'north*' fits none of the snapshot; there are: east, west"),
    ({"vhosts": ("shop",)}, "vhost 'shop' fits none of the snapshot; there are: /"),
    ({"routing_keys": ("keys.*",)}, f"no message fits: routing key 'keys.*'; {KEYS}"),
    ({"routing_keys": ("key.1",), "death_reason": "expired"},
     f"no message fits: routing key 'key.1'; latest death reason 'expired'; {KEYS}; "
     "latest deaths there are: none"),
    ({"since": "2124-01-01T00:00"},
     "no message fits: time from 2124-01-01T00:00; there are messages from 20"),
]  # fmt: skip


def replayed(selection: Selection, _: Path) -> JobReport:
    return replay(Replay(selection, write={"uri": "amqp://127.0.0.1:1"}))


def counted(selection: Selection, _: Path) -> JobReport:
    return replay(Replay(selection), is_dry_run=True)


def exported(selection: Selection, folder: Path) -> JobReport:
    return export(Export(selection, str(folder / "out")))


JOBS: list[Callable[[Selection, Path], JobReport]] = [
    counted,
    exported,
    lambda selection, _: stats(Stats(selection)),
    lambda selection, _: dlq(Dlq(selection)),
]


def test_a_filter_that_fits_nothing_is_an_error_with_the_names_there_are(tmp_path: Path) -> None:
    path = str(stored_snapshot(tmp_path / "data", 20))
    for given, text in NAMES:
        for job in JOBS:
            with pytest.raises(NothingSelected) as caught:
                job(Selection((path,), **given), tmp_path)
            assert str(caught.value).startswith(text)
    assert not list(tmp_path.glob("out*"))


def test_nothing_is_connected_for_a_misspelt_queue(tmp_path: Path) -> None:
    path = str(stored_snapshot(tmp_path / "data", 2))

    with pytest.raises(NothingSelected, match="'ordrs' fits none of the snapshot"):
        replayed(Selection((path,), queues=("ordrs",)), tmp_path)


def test_an_empty_queue_is_not_misspelt(tmp_path: Path) -> None:
    path = str(snapshot_of(stored(tmp_path / "data", 0).data))

    report = stats(Stats(Selection((path,), queues=("east",), routing_keys=("key.*",))))

    assert report.counts["messages"] == 0


def test_a_command_says_so_in_one_line_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(stored_snapshot(tmp_path / "data", 4))

    code = main(["replay", path, "--dry-run", "--queue", "eas"])

    found = capsys.readouterr()
    assert (code, found.out, found.err) == (1, "", f"leveret: {NAMES[0][1]}\n")


def test_spark_without_java_is_one_line_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(stored_snapshot(tmp_path / "data", 4))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for home, place in ((None, "on PATH, nor JAVA_HOME"), ("/nowhere", "in JAVA_HOME (/nowhere)")):
        if home is None:
            monkeypatch.delenv("JAVA_HOME", raising=False)
        else:
            monkeypatch.setenv("JAVA_HOME", home)
        for engine in (["--engine", "spark"], ["--master", "spark://127.0.0.1:1"]):
            assert main(["stats", path, *engine]) == 78
            text = capsys.readouterr().err
            assert text.startswith("leveret: Spark needs Java 17 or newer")
            assert place in text
            assert "--engine local" in text
            assert text.count("\n") == 1
