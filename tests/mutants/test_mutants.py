"""The suite finds the faults that stores and queues are likely to have: each is planted and must be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

import collector_mutants
import snapshot_mutants
import step_mutants
import store_mutants
import stored_mutants
import tool_mutants
import transient_mutants
import variable_mutants
from planted import Faults, Mutant


def suite(folder: str, *names: str) -> list[str]:
    return [f"{folder}/test_{name}.py" for name in names]


PARTS = {
    "variable queue": Faults(
        "queue_backing",
        variable_mutants.MUTANTS,
        suite("queue_backing", "worked_example", "backing_contract", "against_reference",
            "variable_queue", "variable_queue_model"),
        Mutant("variable/delta.py", "BLANK", "BLANK"),
    ),
    "queue over a store": Faults(
        "",
        stored_mutants.MUTANTS,
        suite("msg_store", "content_reader")
        + suite("queue_backing", "row_window", "damaged_contents", "stored_index", "stored_damage",
            "stored_crashes", "stored_queue_model", "backing_contract"),
        Mutant("queue_backing/index/row_window.py", "ROWS", "ROWS"),
    ),
    "store": Faults(
        "msg_store",
        store_mutants.MUTANTS,
        suite("msg_store", "tables", "checkpoint", "group_commit", "carried", "index_machine",
            "recovery"),
        Mutant("memtable/memtables.py", "BEHIND", "BEHIND"),
    ),
    "steps": Faults(
        "msg_store",
        step_mutants.MUTANTS,
        suite("msg_store", "append_steps", "room_ahead", "caller", "flush_steps", "flush_threads"),
        Mutant("format/append_log.py", "AT_THE_END", "AT_THE_END"),
    ),
    "collector": Faults(
        "msg_store",
        collector_mutants.MUTANTS,
        suite("msg_store", "collector_choice", "collector_copy", "collector", "collector_faults",
            "collector_crash"),
        Mutant("gc/collector.py", "MERGES_MAX", "MERGES_MAX"),
    ),
    "snapshots": Faults(
        "msg_store",
        snapshot_mutants.MUTANTS,
        suite("msg_store", "snapshot_steps", "snapshot_at_rest", "image_check"),
        Mutant("checkpoint/snapshot.py", "ROOM_BYTES", "ROOM_BYTES"),
    ),
    "transient store": Faults(
        "msg_store",
        transient_mutants.MUTANTS,
        suite("msg_store", "transient_store", "transient_faults", "transient_machine"),
        Mutant("transient/store.py", "FOLDER", "FOLDER"),
    ),
    "tools": Faults(
        "msg_store",
        tool_mutants.MUTANTS,
        suite("msg_store", "audit", "mending", "salvage", "offline", "index_compaction"),
        Mutant("offline/audit.py", "WINDOW_BYTES", "WINDOW_BYTES"),
    ),
}  # fmt: skip

each_mutant = pytest.mark.parametrize(
    ("faults", "mutant"),
    [
        pytest.param(faults, mutant, id=f"{part}: {name}")
        for part, faults in PARTS.items()
        for name, mutant in faults.mutants.items()
    ],
)


@each_mutant
def test_the_fault_has_its_place(faults: Faults, mutant: Mutant) -> None:
    assert faults.count(mutant) == 1


@pytest.mark.slow
@each_mutant
def test_the_suite_kills(faults: Faults, mutant: Mutant, tmp_path: Path, seed: int) -> None:
    run = faults.run(mutant, tmp_path, seed)

    assert run.returncode == 1, run.stdout[-2_000:] + run.stderr[-500:]


@pytest.mark.slow
@pytest.mark.parametrize("faults", PARTS.values(), ids=PARTS)
def test_without_a_fault_the_planted_tree_passes(faults: Faults, tmp_path: Path, seed: int) -> None:
    run = faults.run(faults.harmless, tmp_path, seed)

    assert run.returncode == 0, run.stdout[-2_000:] + run.stderr[-500:]
