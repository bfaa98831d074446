"""An audit names every planted defect of real stores, and no other; a plan repairs them.

Tests: server/store_tools/audit_command.py
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest

from leveret.core.errors import StoreError
from leveret.msg_store.format.errors import StoreChanged
from leveret.msg_store.offline.audit import audited
from leveret.msg_store.offline.defects import Kind, defects_of
from leveret.msg_store.offline.repair import repair
from leveret.msg_store.offline.repair_plan import RepairPlan, plan_repair, read_plans, write_plans
from leveret.server.cli.main import main
from leveret.spark import audit
from leveret.spark.errors import OptionError
from rigs.nodes import leveret_program, serving
from rigs.programs import ended, run
from rigs.spark.snapshots import channel_of_broker, snapshot_of
from rigs.store.offline.offline_rig import files_of, quiet
from rigs.store.offline.planted_defects import PLANTED, Named, Planter, named

KILLED_BROKER = Path(__file__).parents[2] / "rigs" / "spark" / "killed_broker.py"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of a broker that was stopped: fan-out, priorities, acked messages, three starts."""
    data = tmp_path_factory.mktemp("broker") / "data"

    async def fill(number: int) -> None:
        async with channel_of_broker(data) as channel:
            everywhere = await channel.declare_exchange("all", "fanout", durable=True)
            one = await channel.declare_queue("one", durable=True)
            two = await channel.declare_queue("two", durable=True)
            levels = await channel.declare_queue(
                "levels", durable=True, arguments={"x-max-priority": 2}
            )
            await one.bind(everywhere)
            await two.bind(everywhere)
            rng = random.Random(number)
            for exchange, key in [(everywhere, "")] * 60 + [(channel.default_exchange, "one")] * 90:
                body = rng.randbytes(rng.choice([0, 10, 300, 5_000]))
                await exchange.publish(aio_pika.Message(body, delivery_mode=2), key)
            for priority in range(30):
                made = aio_pika.Message(b"level", delivery_mode=2, priority=priority % 4)
                await channel.default_exchange.publish(made, levels.name)
            for _ in range(25):
                await (await one.get()).ack()

    for number in range(3):
        asyncio.run(fill(number))
    return data


def copied(data: Path, to: Path) -> Path:
    """Copy a data directory; return the folder of its only store that has segments."""
    shutil.copytree(data, to, ignore=shutil.ignore_patterns("control.sock"))
    (store,) = [each.parent for each in to.glob("vhosts/*/rdq") if any(each.iterdir())]
    return store


def left_by_a_kill(data: Path) -> Path:
    """Have a broker killed while it takes messages; return the folder of its store."""
    assert ended([sys.executable, str(KILLED_BROKER), str(data)], data.parent).returncode == -9
    (store,) = [each.parent for each in data.glob("vhosts/*/rdq") if any(each.iterdir())]
    return store


def planted(store: Path, rng: random.Random, what: tuple[str, ...] = PLANTED) -> Planter:
    planter = Planter(store, rng)
    for name in what:
        getattr(planter, name)(rng.randrange(1, 6))
    planter.finish()
    return planter


def found_in(store: Path) -> Named:
    with audited(store, quiet) as found:
        return named(list(defects_of(found)))


def plan_of(store: Path) -> RepairPlan:
    with audited(store, quiet) as found:
        return plan_repair(found)


def test_a_stopped_store_has_no_defects_and_its_garbage_is_counted(
    stopped: Path, tmp_path: Path
) -> None:
    store = copied(stopped, tmp_path / "data")
    before = files_of(tmp_path / "data")

    report = audit(store)

    assert report.is_complete
    assert not any(report.counts[kind.value] for kind in Kind)
    assert report.counts["entries"] == 3 * (60 * 2 + 90 + 30 - 25)
    assert report.counts["records"] == report.counts["messages"] + report.counts["garbage_records"]
    assert report.counts["garbage_records"] > 0
    assert report.counts["damaged_bytes"] == 0
    assert files_of(tmp_path / "data") == before


def test_a_store_that_a_kill_has_left_has_no_defects(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = left_by_a_kill(data)

    report = audit(store)

    assert report.is_complete
    assert report.counts["entries"] >= 500
    assert any("was not stopped in order" in text for text in report.warnings)


@pytest.mark.parametrize("what", PLANTED)
def test_each_class_of_defects_is_named_and_no_other(
    stopped: Path, tmp_path: Path, rng: random.Random, what: str
) -> None:
    store = copied(stopped, tmp_path / "data")

    planter = planted(store, rng, (what,))

    assert found_in(store) == planter.expected


@pytest.mark.parametrize("round_", range(6))
def test_defects_of_all_classes_at_once_are_named_exactly(
    stopped: Path, tmp_path: Path, rng: random.Random, round_: int
) -> None:
    store = copied(stopped, tmp_path / "data")
    planter = planted(store, rng, tuple(rng.sample(PLANTED, rng.randrange(2, len(PLANTED) + 1))))

    report = audit(store)

    assert found_in(store) == planter.expected
    counted = {kind.value: report.counts[kind.value] for kind in Kind}
    expected: Counter[str] = Counter()
    for (kind, _), count in planter.expected.items():
        expected[kind.value] += count
    assert counted == dict.fromkeys(counted, 0) | expected
    assert report.counts["lost_messages"] == len(planter.lost)
    assert not report.is_complete
    assert report.exit_code == 1
    json.loads(report.as_json())


def test_a_segment_that_is_missing_costs_its_messages(
    stopped: Path, tmp_path: Path, rng: random.Random
) -> None:
    store = copied(stopped, tmp_path / "data")
    planter = Planter(store, rng)
    planter.finish()
    segment = rng.choice(sorted((store / "rdq").iterdir()))
    gone = {no for no, place in planter.locations.items() if place[0] == int(segment.stem, 16)}
    segment.unlink()

    assert found_in(store) == Counter((Kind.MISSING_RECORD, msg_no) for msg_no in gone)


# The plan.


def test_a_plan_repairs_all_that_can_be_read_and_can_be_carried_out_twice(
    stopped: Path, tmp_path: Path, rng: random.Random
) -> None:
    store = copied(stopped, tmp_path / "data")
    planter = planted(store, rng)
    file = tmp_path / "plan.jsonl"
    report = audit(store, repair_plan=file)
    assert report.details["repair_plan"] == str(file)
    (plan,) = read_plans(file)
    assert plan == plan_of(store)

    repair(store, plan, plan.epoch_seen + 1, lambda: 9)

    second_records = {key for key in planter.expected if key[0] is Kind.DUPLICATE_ID}
    assert found_in(store).keys() == second_records
    with audited(store, quiet) as found:
        kept = {
            (queue_no, row[0]): row[1]
            for queue_no in found.queues
            for row in found.store.rows(queue_no)
        }
    dropped = {no for kind, no in planter.expected if kind is Kind.WRONG_REFCOUNT}
    for msg_no, entries in planter.entries.items():
        left = [entry for entry in entries if kept.get(entry) == msg_no]
        if msg_no in planter.lost:
            assert left == []
        elif msg_no not in dropped:
            assert left == entries
    before = files_of(store)
    repair(store, plan, plan.epoch_seen + 1, lambda: 10)
    after = files_of(store)
    changed = {name for name in after if after[name][0] != before.get(name, (b"",))[0]}
    assert changed <= {"store.lmdb/data.mdb", "store.lmdb/lock.mdb"}
    assert found_in(store).keys() == second_records


def test_a_plan_for_a_store_that_has_changed_since_is_refused(
    stopped: Path, tmp_path: Path, rng: random.Random
) -> None:
    data = tmp_path / "data"
    store = copied(stopped, data)
    planted(store, rng, ("miscount",))
    plan = plan_of(store)

    async def start() -> None:
        async with channel_of_broker(data) as channel:
            await channel.get_queue("one")

    asyncio.run(start())
    before = files_of(store)

    with pytest.raises(StoreChanged, match="audit it again"):
        repair(store, plan, plan.epoch_seen + 9, lambda: 9)

    assert files_of(store) == before


@pytest.mark.parametrize("cut", ["end", "middle", "word", "version"])
def test_a_plan_that_is_damaged_is_refused(
    stopped: Path, tmp_path: Path, rng: random.Random, cut: str
) -> None:
    store = copied(stopped, tmp_path / "data")
    planted(store, rng, ("miscount", "spoil"))
    file = tmp_path / "plan.jsonl"
    write_plans(file, [plan_of(store)])
    lines = file.read_text().splitlines()
    match cut:
        case "end":
            lines.pop()
        case "middle":
            del lines[2]
        case "word":
            lines[1] = lines[1].replace('"do": "', '"do": "x')
        case _:
            lines[0] = lines[0].replace('"plan": 1', '"plan": 2')
    file.write_text("\n".join(lines) + "\n")

    with pytest.raises(StoreError, match=r"plan\.jsonl"):
        read_plans(file)


# Snapshots, and the command.


def test_a_snapshot_is_audited_and_has_no_plan(
    stopped: Path, tmp_path: Path, rng: random.Random
) -> None:
    store = copied(stopped, tmp_path / "data")
    planter = planted(store, rng, ("drop_locations", "spoil", "double"))
    path = snapshot_of(tmp_path / "data")

    report = audit(path)

    assert report.counts["missing_location"] == sum(
        kind is Kind.MISSING_LOCATION for kind, _ in planter.expected
    )
    assert report.counts["bad_checksum"] == len(planter.lost)
    assert {row["vhost"] for row in report.details["defects"]} == {"/"}
    with pytest.raises(OptionError, match="a snapshot is never changed"):
        audit(path, repair_plan=tmp_path / "plan")


async def test_a_snapshot_of_a_working_broker_has_no_defects_and_no_warnings(
    stopped: Path, tmp_path: Path
) -> None:
    copied(stopped, tmp_path / "data")

    async with channel_of_broker(tmp_path / "data") as channel:
        for number in range(50):
            made = aio_pika.Message(b"%d" % number, delivery_mode=2)
            await channel.default_exchange.publish(made, "two")
        path = await asyncio.to_thread(snapshot_of, tmp_path / "data")

    report = audit(path)
    assert report.is_complete
    assert report.warnings == []
    assert report.counts["entries"] == 3 * (60 * 2 + 90 + 30 - 25) + 50


def test_the_command_audits_a_data_directory_and_store_repair_takes_its_plan(
    stopped: Path, tmp_path: Path, rng: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    data, plan = tmp_path / "data", tmp_path / "plan.jsonl"
    planted(copied(stopped, data), rng, ("drop_locations", "miscount", "misplace", "spoil"))

    def leveret(*words: object) -> tuple[int, Any]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert err == ""
        return code, json.loads(out)

    code, report = leveret("audit", data, "--repair-plan", plan, "--show", 2, "--json")

    assert (code, report["complete"], report["job"], report["engine"]) == (
        1,
        False,
        "audit",
        "local",
    )
    assert len(report["details"]["defects"]) == 2
    assert any("names the first 2 of" in text for text in report["warnings"])
    shown = report["details"]["defects"][0]["entries"]
    assert {queue for queue, _ in shown} <= {"one", "two", "levels"}

    code, answer = leveret("store", "repair", data, "--plan", plan, "--json")

    assert (code, [row["is_done"] for row in answer["stores"]]) == (0, [True])
    assert leveret("audit", data, "--json")[0] == 0
    code, answer = leveret("store", "repair", data, "--plan", plan, "--json")
    assert (code, [row["is_done"] for row in answer["stores"]]) == (0, [True])


def test_a_plan_file_that_is_there_is_not_replaced(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(stopped, tmp_path / "data")
    (tmp_path / "plan").write_text("mine")

    code = main(["audit", str(tmp_path / "data"), "--repair-plan", str(tmp_path / "plan")])

    assert code == 78
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "plan").read_text() == "mine"


@pytest.mark.slow
def test_a_million_messages_with_planted_defects(tmp_path: Path, rng: random.Random) -> None:
    data, count = tmp_path / "data", 1_000_000
    with serving(tmp_path, "--data", str(data)) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        for number in range(10):
            connection.channel().queue_declare(f"perf-{number}", durable=True)
        connection.close()
        words = ["-x", "5", "-y", "0", "-C", str(count // 5), "-s", "100", "-c", "1000", "-p"]
        words += ["-qp", "perf-%d", "-qpf", "0", "-qpt", "9", "-f", "persistent", "-e", ""]
        run([leveret_program(), "perf", *words, "-h", broker.url], tmp_path, timeout_s=900)
    (store,) = [each.parent for each in data.glob("vhosts/*/rdq") if any(each.iterdir())]
    report = audit(store)
    assert report.is_complete
    assert report.counts["entries"] == count
    planter = Planter(store, rng)
    planter.drop_entries(50)
    planter.drop_locations(50)
    planter.miscount(50)
    planter.misplace(20)
    planter.spoil(10)
    planter.double(5)
    planter.finish()

    report = audit(store, repair_plan=tmp_path / "plan")

    assert found_in(store) == planter.expected
    assert report.counts["missing_location"] == 50
    assert report.counts["wrong_refcount"] == 100
    assert report.counts["wrong_location"] == 20
    assert report.counts["bad_checksum"] == report.counts["lost_messages"] == 10
    assert report.counts["duplicate_id"] == 5
    (plan,) = read_plans(tmp_path / "plan")
    repair(store, plan, plan.epoch_seen + 1, lambda: 9)
    assert found_in(store).keys() == {
        key for key in planter.expected if key[0] is Kind.DUPLICATE_ID
    }


def test_audit_and_rebuild_need_no_library_of_the_extra(stopped: Path, tmp_path: Path) -> None:
    copied(stopped, tmp_path / "data")
    program = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "pyarrow", "pyspark"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from leveret.server.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    for words in (["audit", "data"], ["rebuild", "data", "--dry-run"]):
        ending = ended([sys.executable, "-P", "-c", program, *words], tmp_path)
        assert (ending.returncode, ending.stderr) == (0, "")
    ending = ended(
        [sys.executable, "-P", "-c", program, "audit", "data", "--master", "local"], tmp_path
    )
    assert ending.returncode == 78
    assert "is missing: pip install 'leveret[spark]'" in ending.stderr
