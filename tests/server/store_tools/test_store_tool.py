"""``leveret store`` on stores and data directories that no broker uses.

Tests: server/output/progress.py, server/store_tools/command.py, server/store_tools/dirs.py,
    server/store_tools/findings.py, server/store_tools/stats.py, server/store_tools/text.py,
    server/store_tools/work.py
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.node.store_server import store_folder
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import QueueRow, Row, VhostRow
from leveret.msg_store.format.rows import IndexFull
from leveret.server.cli.main import main
from leveret.server.output.progress import progress_bar
from leveret.server.process import DataDirectory
from leveret.server.store_tools.findings import ranges
from leveret.server.store_tools.text import size_text
from rigs.store.offline.offline_rig import OfflineRig, files_of
from rigs.store.offline.store_damage import DAMAGES, damage_index

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_(verb: str, *arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()  # the seed
        code = main(["store", verb, *map(str, arguments)])
        return code, *capsys.readouterr()

    return run_


def metadata(data: Path, *rows: Row) -> None:
    store = MetadataStore(data / "metadata", lambda told: told())
    store.write(rows, [], lambda error: None)
    store.close()


@pytest.fixture
def rig(tmp_path: Path, rng: random.Random) -> OfflineRig:
    """The store of a vhost with three queues, one of them with priorities; it was stopped."""
    data = tmp_path / "data"
    levels = {"x-max-priority": ("b", 2)}
    metadata(
        data,
        VhostRow("v"),
        VhostRow("empty"),
        QueueRow("v", "one", queue_no=1),
        QueueRow("v", "tw\no", queue_no=2),
        QueueRow("v", "levels", queue_no=3, arguments=levels),
    )
    folder = store_folder(data, "v")
    folder.parent.mkdir()
    rig = OfflineRig(folder)
    rig.busy(rng)
    for queue_no in (3, 5, 5):  # so that the journal does not go back to the beginning
        rig.publish((queue_no,), 1)
        rig.store.checkpoint()
    rig.stop()
    return rig


def data_of(rig: OfflineRig) -> Path:
    return rig.path.parent.parent


def one(answer: str) -> dict[str, Any]:
    (row,) = json.loads(answer)["stores"]
    return row


def messages_of(rig: OfflineRig, queue_no: int) -> int:
    return sum(key[0] == queue_no for key in rig.rows)


VERBS = [("stat",), ("verify",), ("repair",), ("repair", "--yes"), ("compact",)]


# Stats.


def test_stat_names_the_queues_and_changes_nothing(run: Run, rig: OfflineRig) -> None:
    before = files_of(data_of(rig))

    code, out, err = run("stat", data_of(rig), "--json")

    assert (code, err) == (0, "")
    row = one(out)
    assert (row["vhost"], row["is_clean"], row["damage"], row["lost"]) == ("v", True, [], 0)
    assert row["messages"] == len(rig.rows)
    assert {queue["name"]: queue["messages"] for queue in row["queues"]} == {
        "one": messages_of(rig, 1),
        "tw\no": messages_of(rig, 2),
        "levels": 3,
    }
    assert row["live_bytes"] + row["garbage_bytes"] == row["segment_bytes"]
    assert row["live_bytes"] == sum(place[2] for place in rig.locations().values())
    assert row["index"]["entries"] == len(rig.rows) + len(set(rig.rows.values()))
    assert row["checkpoint"]["boot_epoch"] == 1
    assert files_of(data_of(rig)) == before


def test_stat_for_people_keeps_names_on_their_line(run: Run, rig: OfflineRig) -> None:
    code, out, _ = run("stat", data_of(rig))

    assert code == 0
    assert f"of vhost 'v': stopped\n  messages   {len(rig.rows)}, bodies" in out
    assert f"{messages_of(rig, 2):>10}  queue 'tw\\no'\n" in out
    assert "no definition" not in out


def test_the_folder_of_a_store_in_a_data_directory_will_do(run: Run, rig: OfflineRig) -> None:
    assert one(run("stat", rig.path, "--json")[1])["queues"][0]["name"] == "one"


def test_a_copy_of_a_store_has_no_names(run: Run, rig: OfflineRig, tmp_path: Path) -> None:
    copy = rig.path.rename(tmp_path / "copy")

    code, out, _ = run("stat", copy)

    assert code == 0
    assert "queue number 1\n" in out


def test_what_belongs_to_nobody_is_told(run: Run, rig: OfflineRig) -> None:
    rig.open()
    rig.publish((99,), 4)
    rig.stop()
    other = OfflineRig(data_of(rig) / "vhosts" / "0123")
    other.stop()
    (data_of(rig) / "vhosts" / "4567-1700000000000.deleted").mkdir()

    _, out, _ = run("stat", data_of(rig))

    assert "queue number 99 (no definition)" in out
    assert f"{other.path} belongs to no vhost" in out
    assert "4567" not in out


def test_definitions_that_cannot_be_read_keep_nobody_from_the_messages(
    run: Run, rig: OfflineRig
) -> None:
    os.truncate(data_of(rig) / "metadata" / "data.mdb", 8192)

    code, out, _ = run("verify", data_of(rig))

    assert code == 1
    assert out.startswith("definitions cannot be read, queues have no names: ")
    assert f": sound, {len(rig.rows)} messages" in out
    assert "belongs to no vhost" not in out
    assert run("stat", data_of(rig))[0] == 0


# Damage.


def test_verify_finds_a_sound_store_sound(run: Run, rig: OfflineRig) -> None:
    code, out, err = run("verify", data_of(rig))

    assert (code, err) == (0, "")
    assert f"sound, {len(rig.rows)} messages" in out


def test_verify_names_queue_and_seqs_of_what_is_damaged(run: Run, rig: OfflineRig) -> None:
    key, msg_no = next(iter(rig.rows.items()))
    rig.spoil(msg_no)
    before = files_of(data_of(rig))

    code, out, _ = run("verify", data_of(rig))
    row = one(run("verify", data_of(rig), "--json")[1])

    assert code == 1
    assert "DAMAGED" in out
    assert f"queue 'one': 1 message cannot be read, seq {key[1]}: checksum of record" in out
    lost = {each["queue_no"]: each for each in row["lost"]}
    assert lost[1]["name"] == "one"
    assert lost[1]["seqs"] == [[key[1], key[1]]]
    assert not row["is_sound"]
    assert files_of(data_of(rig)) == before


def test_repair_says_what_it_would_do_and_does_it_when_told_to(run: Run, rig: OfflineRig) -> None:
    msg_no = next(iter(rig.rows.values()))
    rig.spoil(msg_no)
    before = files_of(data_of(rig))

    code, out, _ = run("repair", data_of(rig))
    assert code == 1
    assert "to be repaired, with --yes" in out
    assert "taken out of the queue; the rest of their records is set aside" in out
    assert files_of(data_of(rig)) == before

    assert run("repair", data_of(rig), "--yes")[0] == 0
    code, out, _ = run("verify", data_of(rig))
    left = [no for no in rig.rows.values() if no != msg_no]
    assert code == 0
    assert f"sound, {len(left)} messages" in out
    assert one(run("stat", data_of(rig), "--json")[1])["quarantine"]["lost"] >= 1
    code, out, _ = run("repair", data_of(rig), "--yes")
    assert (code, "nothing to repair" in out) == (0, True)


@pytest.mark.parametrize("what", DAMAGES)
def test_a_lost_index_is_rebuilt(run: Run, rig: OfflineRig, what: str) -> None:
    damage_index(rig, what)

    assert run("verify", rig.path)[0] == 1
    assert run("repair", rig.path, "--yes")[0] == 0
    code, out, _ = run("verify", rig.path, "--json")

    assert code == 0
    assert one(out)["messages"] >= len(rig.rows)


def test_a_missing_segment_is_told_by_queue(run: Run, rig: OfflineRig) -> None:
    lost = [no for no, place in rig.locations().items() if place[0] == 1]
    rig.segment(1).unlink()

    code, out, _ = run("verify", data_of(rig), "--json")

    assert code == 1
    named = {
        (each["queue_no"], seq)
        for each in one(out)["lost"]
        for first, last in each["seqs"]
        for seq in range(first, last + 1)
    }
    assert named == {key for key, msg_no in rig.rows.items() if msg_no in lost}


def test_repair_counts_as_a_start_of_the_broker(run: Run, rig: OfflineRig) -> None:
    rig.spoil(next(iter(rig.rows.values())))
    damage_index(rig, "deleted")

    assert run("repair", data_of(rig), "--yes")[0] == 0

    store = MetadataStore(data_of(rig) / "metadata", lambda told: told())
    epoch = store.next_boot_epoch()
    store.close()
    assert epoch == 3
    rig.boot_epoch = epoch - 1
    rig.open()
    rig.stop()


# Salvage.


def test_salvage_makes_a_data_directory_that_is_sound(
    run: Run, rig: OfflineRig, tmp_path: Path
) -> None:
    msg_no = next(iter(rig.rows.values()))
    rig.spoil(msg_no)
    before = files_of(data_of(rig))

    code, out, _ = run("salvage", data_of(rig), "--to", tmp_path / "new")

    assert code == 1
    assert "left behind: queue 'one': 1 message cannot be read" in out
    assert files_of(data_of(rig)) == before
    code, out, _ = run("verify", tmp_path / "new", "--json")
    left = [no for no in rig.rows.values() if no != msg_no]
    assert (code, one(out)["messages"], one(out)["vhost"]) == (0, len(left), "v")
    assert not (tmp_path / "new.unfinished").exists()


def test_salvage_can_take_all_that_is_in_the_segments(
    run: Run, rig: OfflineRig, tmp_path: Path
) -> None:
    code, out, _ = run("salvage", rig.path, "--to", tmp_path / "new", "--from-segments", "--json")

    assert code == 0
    assert one(out)["rows"] > len(rig.rows), "acked messages come back"
    assert run("verify", tmp_path / "new")[0] == 0


@pytest.mark.parametrize("what", ["full", "inside", "around", "unfinished", "network"])
def test_salvage_refuses_a_bad_place(
    run: Run, rig: OfflineRig, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"inside": rig.path / "new", "around": tmp_path}.get(what, tmp_path / "new")
    if what == "full":
        (target / "x").mkdir(parents=True)
    if what == "unfinished":
        (tmp_path / "new.unfinished").mkdir()
    if what == "network":
        (tmp_path / "mounts").write_text(f"1 0 0:40 / {target} rw - cifs //server/share rw\n")
        monkeypatch.setattr("leveret.core.system.mounts._MOUNTS", tmp_path / "mounts")

    code, out, err = run("salvage", data_of(rig), "--to", target)

    assert (code, out, err.count("\n")) == (78, "", 1)


def test_a_full_disk_leaves_nothing_behind(
    run: Run, rig: OfflineRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, batch: object) -> None:
        raise IndexFull("No space left on device")

    rig.spoil(next(iter(rig.rows.values())))
    monkeypatch.setattr("leveret.msg_store.index.lmdb_index.LmdbIndex.write", full)

    code, out, err = run("salvage", data_of(rig), "--to", tmp_path / "new")
    assert (code, out) == (74, "")
    assert (
        err
        == f"leveret: No space left on device: {tmp_path / 'new.unfinished'}/vhosts/{rig.path.name}\n"
    )
    assert os.listdir(tmp_path) == ["data"]
    assert run("repair", data_of(rig), "--yes")[0] == 74

    monkeypatch.undo()
    assert run("repair", data_of(rig), "--yes")[0] == 0


# Compaction.


def test_compact_gives_space_back(run: Run, rig: OfflineRig) -> None:
    code, out, _ = run("compact", data_of(rig), "--json")

    assert code == 0
    row = one(out)
    live = sum(place[2] for place in rig.locations().values())
    assert row["segment_bytes"] == live + 64 < row["segment_bytes_before"]
    code, out, _ = run("verify", data_of(rig), "--json")
    assert (code, one(out)["messages"]) == (0, len(rig.rows))
    assert one(run("stat", data_of(rig), "--json")[1])["is_clean"]


def test_compact_leaves_damaged_stores_to_repair(run: Run, rig: OfflineRig) -> None:
    damage_index(rig, "deleted")

    code, _, err = run("compact", data_of(rig))

    assert code == 78
    assert "is damaged; repair it first" in err


# Refusals.


@pytest.mark.parametrize("verb", [*VERBS, ("salvage", "--to", "new")], ids=lambda verb: verb[0])
def test_a_data_directory_in_use_is_refused_with_one_line(
    run: Run, rig: OfflineRig, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    arguments = [tmp_path / "new" if each == "new" else each for each in verb[1:]]
    with DataDirectory(data_of(rig)):
        for path in (data_of(rig), rig.path):
            code, out, err = run(verb[0], path, *arguments)

            assert (code, out) == (78, "")
            assert err == (
                f"leveret: data directory {data_of(rig)} is in use by the broker"
                f" with process id {os.getpid()}\n"
            )


@pytest.mark.parametrize("verb", VERBS)
def test_a_store_in_use_is_refused_with_one_line(
    run: Run, rig: OfflineRig, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    rig.path = rig.path.rename(tmp_path / "copy")
    rig.open()

    code, out, err = run(verb[0], rig.path, *verb[1:])

    assert (code, out, err) == (78, "", f"leveret: {rig.path} is in use by another process\n")
    rig.stop()


@pytest.mark.parametrize("verb", VERBS)
def test_a_newer_format_is_refused_and_not_touched(
    run: Run, rig: OfflineRig, verb: tuple[str, ...]
) -> None:
    path = rig.path / "FORMAT"
    path.write_text(path.read_text().replace("message-store 2", "message-store 3"))
    before = files_of(rig.path)

    code, out, err = run(verb[0], rig.path, *verb[1:])

    assert (code, out) == (78, "")
    assert err == f"leveret: {rig.path} has format 3, known are up to 2\n"
    assert files_of(rig.path) == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_what_is_no_store_is_refused(
    run: Run, tmp_path: Path, verb: tuple[str, ...], what: str
) -> None:
    path = tmp_path / what
    if what == "file":
        path.write_text("")
    if what == "empty":
        path.mkdir()

    code, out, err = run(verb[0], path, *verb[1:])

    assert (code, out, err.count("\n")) == (78, "", 1)
    assert str(path) in err
    assert os.listdir(tmp_path) == ([] if what == "missing" else [what])


def test_a_data_directory_without_stores_is_fine(run: Run, tmp_path: Path) -> None:
    metadata(tmp_path, VhostRow("v"))

    assert run("verify", tmp_path) == (0, "no stores\n", "")


@pytest.mark.parametrize("arguments", [[], ["stat"], ["salvage", "x"], ["frob", "x"]])
def test_wrong_arguments_exit_with_64(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["store", *arguments])

    assert caught.value.code == 64


# Words.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for screen in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar("verify") as progress:
            progress("messages", 5, 10)

        assert ("verify" in screen.getvalue()) == screen.isatty()


def test_seqs_are_told_as_ranges() -> None:
    assert ranges([5, 1, 2, 3, 9]) == [(1, 3), (5, 5), (9, 9)]
    assert ranges([]) == []


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (3 << 20, "3.0 MiB"), (1 << 60, "1048576.0 TiB")],
)  # fmt: skip
def test_sizes_have_units(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
