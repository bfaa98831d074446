"""A rebuild brings every message back that a segment has, and says which had been acked.

Tests: msg_store/offline/rebuilding.py, server/store_tools/rebuild_command.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.msg_store.offline.audit import audited
from leveret.server.cli.main import main
from leveret.spark import audit, rebuild
from leveret.spark.errors import OptionError
from rigs.nodes import serving
from rigs.spark.jobs import stored
from rigs.spark.snapshots import snapshot_of
from rigs.store.offline.offline_rig import OfflineRig, bodies_of, files_of, quiet, rows_of
from rigs.store.offline.planted_defects import Planter
from rigs.store.offline.store_damage import DAMAGES, damage_index


@pytest.fixture
def rig(tmp_path: Path, rng: random.Random) -> OfflineRig:
    """A store that was stopped, with acked messages in its segments, and no journal that tells of the acks."""
    rig = OfflineRig(tmp_path / "store")
    rig.busy(rng, 12)
    for _ in range(2):
        rig.publish((1,), 1)
        rig.store.checkpoint()
    rig.stop()
    return rig


def counts_of(rig: OfflineRig) -> dict[str, int]:
    return {
        "messages": len(set(rig.rows.values())),
        "entries": len(rig.rows),
    }


def entries_of(path: Path) -> set[tuple[int, int]]:
    """Return queue number and message of each entry."""
    with audited(path, quiet) as found:
        assert found.is_sound
        return {(queue_no, msg_no) for (queue_no, _), msg_no in rows_of(found).items()}


def test_a_dry_run_counts_what_would_come_back_and_changes_nothing(rig: OfflineRig) -> None:
    before = files_of(rig.path)

    report = rebuild(rig.path, is_dry_run=True)

    counts = report.counts
    assert report.is_dry_run
    assert report.is_complete
    assert counts["gone"] == 0
    assert counts["came_back"] > 0
    assert counts["entries"] - counts["came_back"] == len(rig.rows)
    assert any("were acked and not yet collected" in text for text in report.warnings)
    assert files_of(rig.path) == before


def test_a_rebuilt_store_has_every_message_of_the_segments(rig: OfflineRig, tmp_path: Path) -> None:
    report = rebuild(rig.path, tmp_path / "new")

    live = {(key[0], msg_no) for key, msg_no in rig.rows.items()}
    entries = entries_of(tmp_path / "new")
    assert entries > live
    assert len(entries) == report.counts["entries"]
    assert len(entries - live) == report.counts["came_back"]
    with audited(tmp_path / "new", quiet) as found:
        bodies = bodies_of(found)
    assert bodies == {no: rig.bodies[no] for _, no in entries}
    assert audit(tmp_path / "new").is_complete


def test_what_no_segment_has_is_counted(rig: OfflineRig, tmp_path: Path) -> None:
    msg_no = next(iter(rig.rows.values()))
    rig.spoil(msg_no)

    report = rebuild(rig.path, tmp_path / "new")

    lost = {(key[0], no) for key, no in rig.rows.items() if no == msg_no}
    assert report.counts["gone"] == len(lost)
    assert not report.is_complete
    assert entries_of(tmp_path / "new").isdisjoint(lost)


def test_a_second_record_of_a_message_is_no_second_entry(
    rig: OfflineRig, rng: random.Random
) -> None:
    before = rebuild(rig.path, is_dry_run=True)
    planter = Planter(rig.path, rng)
    planter.double(40)
    planter.finish()

    report = rebuild(rig.path, is_dry_run=True)

    assert report.counts == before.counts
    assert report.details["stores"][0]["queues"] == before.details["stores"][0]["queues"]


@pytest.mark.parametrize("what", DAMAGES)
def test_with_an_index_that_cannot_be_used_nothing_is_compared(
    rig: OfflineRig, tmp_path: Path, what: str
) -> None:
    damage_index(rig, what)

    report = rebuild(rig.path, tmp_path / "new")

    assert report.details["stores"][0]["came_back"] is None
    assert any("it is unknown how many" in text for text in report.warnings)
    assert entries_of(tmp_path / "new") >= {(key[0], no) for key, no in rig.rows.items()}


def test_a_folder_that_is_there_is_refused(rig: OfflineRig, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()

    with pytest.raises(OptionError, match="is there already"):
        rebuild(rig.path, tmp_path / "new")
    with pytest.raises(OptionError, match="a dry run to none"):
        rebuild(rig.path, tmp_path / "other", is_dry_run=True)


# A broker's data directory.


def consumed_by_half(folder: Path) -> Path:
    """Have a broker take 200 messages and deliver half of them; return its data directory."""
    with serving(folder) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for number in range(200):
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "q", b"%d" % number * 50, properties)
        connection.close()
    with serving(
        folder
    ) as broker:  # a start writes a checkpoint, so no journal names these messages
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        for _ in range(100):
            method, _, _ = channel.basic_get("q")
            channel.basic_ack(method.delivery_tag)
        connection.close()
    for _ in range(2):  # the journal of the acks is not needed any more, and goes
        with serving(folder):
            pass
    return folder / "data"


def leveret(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main([*map(str, words), "--json"])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def depth(folder: Path) -> int:
    with serving(folder) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        count = connection.channel().queue_declare("q", passive=True).method.message_count
        connection.close()
    return int(count)


@pytest.mark.parametrize("is_in_place", [True, False])
def test_the_command_brings_acked_messages_back_and_keeps_the_old_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_in_place: bool
) -> None:
    data = consumed_by_half(tmp_path)
    code, dry = leveret(capsys, "rebuild", data, "--dry-run")
    assert (code, dry["dry_run"]) == (0, True)
    assert dry["counts"] == {"messages": 200, "entries": 200, "came_back": 100, "gone": 0}
    assert depth(tmp_path) == 100

    where = [] if is_in_place else ["--to", tmp_path / "new" / "data"]
    (tmp_path / "new").mkdir()
    code, report = leveret(capsys, "rebuild", data, *where)

    assert (code, report["dry_run"], report["counts"]) == (0, False, dry["counts"])
    (row,) = (each for each in report["details"]["stores"] if each["vhost"] == "/")
    assert [each["queue"] for each in row["queues"]] == ["q"]
    if is_in_place:
        (name,) = row["set_aside"]
        assert (Path(row["path"]) / "quarantine" / name / "data.mdb").is_file()
    assert depth(tmp_path if is_in_place else tmp_path / "new") == 200


def test_a_snapshot_is_rebuilt_into_a_new_store(tmp_path: Path) -> None:
    path = snapshot_of(consumed_by_half(tmp_path))

    report = rebuild(path, tmp_path / "new")

    (store,) = (tmp_path / "new").iterdir()
    assert report.counts["entries"] == len(entries_of(store)) == 200


@pytest.mark.parametrize("part", ["", "vhosts/*"])
@pytest.mark.parametrize(
    "command",
    [
        "store repair {} --yes",
        "store repair {} --plan plan.jsonl",
        "store compact {}",
        "rebuild {}",
        "audit {} --repair-plan new.jsonl",
    ],
)
def test_nothing_changes_a_snapshot_however_it_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = snapshot_of(stored(tmp_path / "data").data)
    assert main(["audit", "data", "--repair-plan", "plan.jsonl"]) == 0
    (named,) = path.glob(part) if part else (path,)
    before = {each: each.stat().st_mtime_ns for each in path.rglob("*")}

    code = main(command.format(named).split())

    assert code == 78
    assert "snapshot is never changed" in capsys.readouterr().err
    assert {each: each.stat().st_mtime_ns for each in path.rglob("*")} == before
    assert not (tmp_path / "new.jsonl").exists()


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path):
        assert main(["rebuild", str(tmp_path / "data")]) == 78
        assert main(["audit", str(tmp_path / "data")]) == 78

    assert capsys.readouterr().err.count("in use") == 2
