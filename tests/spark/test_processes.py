"""What other processes load: executors, brokers, and Spark when it looks for data sources."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path

from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.reader import open_scan
from leveret.spark.source import ScanPartition
from leveret.spark.stream.admission import Limit
from leveret.spark.stream.batch import partitions_of, settings_of
from rigs.programs import python, run
from rigs.spark.archives import ArchivedData, Stream
from rigs.spark.messages import messages
from rigs.spark.snapshots import DataRig, snapshot_of

ROOT = Path(__file__).parents[2]
TASK = """
import pickle, sys
from leveret.spark.source import LeveretReader
partition = pickle.loads(open(sys.argv[1], "rb").read())
rows = sum(batch.num_rows for batch in LeveretReader.read(None, partition))
print(rows, *sorted({"lmdb", "pandas", "leveret.metadata", "leveret.broker"} & set(sys.modules)))
"""
STREAM = """
import pickle, sys
from leveret.spark.stream.tasks import read_piece
pieces, settings = pickle.loads(open(sys.argv[1], "rb").read())
rows = sum(batch.num_rows for piece in pieces for batch in read_piece(piece, settings))
print(rows, *sorted({"lmdb", "pandas", "pyspark", "leveret.metadata", "leveret.broker"} & set(sys.modules)))
"""
SCAN = """
import sys
from leveret.spark.scan.reader import read
print(sum(batch.num_rows for batch in read({"path": sys.argv[1]})), "pyspark" in sys.modules)
"""
FOUND = """
import sys
sys.path.append(sys.argv[1])
from pkgutil import iter_modules
from importlib import import_module
found = [import_module(each.name).DefaultSource for each in iter_modules() if each.name == "pyspark_leveret"]
print([each.name() for each in found])
"""


def snapshot(tmp_path: Path) -> Path:
    rig = DataRig(tmp_path / "data", {"one": 1})
    rig.publish(messages(random.Random(1), 30), (1,))
    rig.stop()
    return snapshot_of(rig.data)


def test_a_task_opens_segments_and_locators_and_no_index(tmp_path: Path) -> None:
    path = snapshot(tmp_path)
    scan = open_scan(ReadOptions.of({"path": str(path)}))
    (partition,) = scan.partitions()
    task, packed = tmp_path / "task.py", tmp_path / "partition"
    task.write_text(TASK)
    packed.write_bytes(pickle.dumps(ScanPartition("messages", scan.settings, partition)))
    (path / "MANIFEST.json").unlink()

    assert python(task, str(packed), folder=tmp_path) == "30\n"


def test_a_task_of_a_stream_opens_segments_and_no_index(tmp_path: Path) -> None:
    rig = ArchivedData(tmp_path / "data")
    rig.publish((1,), 30)
    stream = Stream(rig.data)
    start = stream.follower.initial()
    (pieces,) = partitions_of(stream.options, start, stream.follower.latest(start, Limit()))
    rig.close()
    task, packed = tmp_path / "task.py", tmp_path / "partition"
    task.write_text(STREAM)
    packed.write_bytes(pickle.dumps((pieces, settings_of(stream.options))))

    assert python(task, str(packed), folder=tmp_path) == "30\n"


def test_the_scan_needs_no_spark(tmp_path: Path) -> None:
    script = tmp_path / "scan.py"
    script.write_text(SCAN)

    assert python(script, str(snapshot(tmp_path)), folder=tmp_path) == "30 False\n"


def test_the_package_is_light_until_it_is_used(tmp_path: Path) -> None:
    code = "import sys, leveret.spark; print({'pyspark', 'numpy', 'pyarrow'} & set(sys.modules))"

    assert run([sys.executable, "-c", code], tmp_path) == "set()\n"


def test_spark_finds_the_data_source_by_the_name_of_its_module(tmp_path: Path) -> None:
    script = tmp_path / "found.py"
    script.write_text(FOUND)

    assert python(script, str(ROOT / "spark/_autoload"), folder=tmp_path) == "['leveret']\n"


def test_the_package_says_what_it_has() -> None:
    import leveret.spark

    for name in leveret.spark.__all__:
        assert getattr(leveret.spark, name).__name__ == name
    assert {"read_snapshot", "register", "session", "replay"} <= set(leveret.spark.__all__)
