"""``leveret store`` on the data of stopped and killed brokers, and brokers on its results."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from durable.restarts.test_restarts import PERSISTENT, channel_of, drain, node, publish
from leveret.broker.node.store_server import store_folder
from leveret.msg_store.offline.inspection import Inspection
from rigs.nodes import (
    BrokerUnderTest,
    clean_environment,
    kill_leveret,
    leveret_program,
    stop_leveret,
)
from rigs.store.offline.offline_rig import flip

MESSAGES = 300


def store(verb: str, folder: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [leveret_program(), "store", verb, str(folder), "--json", *arguments],
        cwd=folder.parent,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def filled(folder: Path, end: Any) -> Path:
    """A data directory with a fan-out of which one queue has been consumed in part."""
    with node(folder) as broker, channel_of(broker) as channel:
        for queue in ("kept", "consumed"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.fanout")
        for number in range(MESSAGES):
            channel.basic_publish("amq.fanout", "", b"%d" % number, PERSISTENT)
        for _ in range(MESSAGES // 3):
            channel.basic_get("consumed", auto_ack=True)
        end(broker)
    return folder / "data"


def numbers(broker: BrokerUnderTest, queue: str) -> list[int]:
    with channel_of(broker) as channel:
        return [number for number, _ in drain(channel, queue)]


def test_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    with node(tmp_path) as broker:
        for verb in ("stat", "verify", "repair", "compact"):
            code, _, errors = store(verb, tmp_path / "data")

            assert code == 78
            assert f"is in use by the broker with process id {broker.pid}\n" in errors


@pytest.mark.parametrize("end", [stop_leveret, kill_leveret], ids=["stopped", "killed"])
def test_what_a_broker_left_is_sound_and_small_and_goes_on(tmp_path: Path, end: Any) -> None:
    data = filled(tmp_path, end)

    code, answer, _ = store("stat", data)
    assert code == 0
    counts = {queue["name"]: queue["messages"] for queue in answer["stores"][0]["queues"]}
    assert counts["kept"] == MESSAGES
    assert MESSAGES * 2 // 3 <= counts["consumed"] <= MESSAGES
    assert store("verify", data)[0] == 0
    assert store("compact", data)[0] == 0
    assert store("verify", data)[0] == 0

    with node(tmp_path) as broker, channel_of(broker) as channel:
        got = drain(channel, "kept")
    assert [number for number, _ in got] == list(range(MESSAGES))
    assert {again for _, again in got} == {end is kill_leveret}, "clean queues stay clean"


def test_one_damaged_message_is_named_and_repaired_and_the_others_are_delivered(
    tmp_path: Path,
) -> None:
    data = filled(tmp_path, stop_leveret)
    folder = store_folder(data, "/")
    with Inspection(folder) as store_:
        (queue_no, *_) = store_.queue_nos()
        seq, msg_no, *_ = list(store_.rows(queue_no))[-1]
        file_no, offset, *_ = dict(store_.locations())[msg_no]
    flip(folder / "rdq" / f"{file_no:08x}.rdq", offset + 50)

    code, answer, _ = store("verify", data)
    assert code == 1
    lost = {each["name"]: each["seqs"] for each in answer["stores"][0]["lost"]}
    assert lost["kept"] == [[seq, seq]]
    assert store("repair", data)[0] == 1
    assert store("repair", data, "--yes")[0] == 0
    assert store("verify", data)[0] == 0

    with node(tmp_path) as broker:
        assert numbers(broker, "kept") == list(range(MESSAGES - 1))


@pytest.mark.parametrize("what", ["deleted", "zeroed", "cut off"])
def test_without_its_index_a_store_is_repaired_or_salvaged_whole(tmp_path: Path, what: str) -> None:
    data = filled(tmp_path, kill_leveret)
    index = store_folder(data, "/") / "store.lmdb" / "data.mdb"
    match what:
        case "deleted":
            index.unlink()
        case "zeroed":
            index.write_bytes(bytes(1 << 16))
        case _:
            os.truncate(index, 4096)
    elsewhere = tmp_path / "elsewhere" / "data"
    elsewhere.parent.mkdir()

    assert store("salvage", data, "--to", str(elsewhere))[0] == 0
    assert store("repair", data, "--yes")[0] == 0

    for place in (tmp_path, elsewhere.parent):
        assert store("verify", place / "data")[0] == 0
        with node(place) as broker:
            assert numbers(broker, "kept") == list(range(MESSAGES))
            assert set(numbers(broker, "consumed")) >= set(range(MESSAGES // 3, MESSAGES))
            with channel_of(broker) as channel:
                publish(channel, "kept", range(7))
                assert [number for number, _ in drain(channel, "kept")] == list(range(7))
