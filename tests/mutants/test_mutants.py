"""The suite finds the faults that stores and queues are likely to have: each is planted and must be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants.broker import (
    broker_mutants,
    fan_out_mutants,
    plugin_mutants,
    producer_mutants,
    routing_mutants,
    transaction_mutants,
)
from mutants.cluster import (
    cluster_mutants,
    etcd_mutants,
    gm_mutants,
    link_mutants,
    metadata_mutants,
    replica_mutants,
)
from mutants.planted import ROOT, Faults, Mutant
from mutants.store import (
    archive_mutants,
    collector_mutants,
    end_mutants,
    snapshot_mutants,
    step_mutants,
    store_mutants,
    stored_mutants,
    tool_mutants,
    transient_mutants,
    variable_mutants,
)


def suite(folder: str, *names: str) -> list[str]:
    """Name test files: ``gc/copy`` is ``folder/gc/test_copy.py``."""
    return [
        str(Path(folder, *parts, f"test_{last}.py"))
        for *parts, last in (name.split("/") for name in names)
    ]


PARTS = {
    "variable queue": Faults(
        variable_mutants.MUTANTS,
        suite(
            "queue_backing",
            "variable/worked_example",
            "backing_contract",
            "variable/against_reference",
            "variable/queue",
            "variable/begin_paging",
            "variable/queue_in_ram",
            "variable/queue_model",
        ),
    ),
    "queue over a store": Faults(
        stored_mutants.MUTANTS,
        suite("msg_store", "reading/read_thread", "reading/contents", "index/lmdb_index")
        + suite(
            "queue_backing",
            "index/row_window",
            "variable/damaged_contents",
            "index/stored",
            "index/stored_damage",
            "index/stored_crashes",
            "index/stored_queue_model",
            "backing_contract",
        ),
    ),
    "store": Faults(
        store_mutants.MUTANTS,
        suite(
            "msg_store",
            "memtable/memtables",
            "checkpoint/checkpoint",
            "checkpoint/driver",
            "wal/group_commit",
            "recovery/redo",
            "index/index_machine",
            "recovery/recovery",
            "recovery/reclaim",
            "gc/collector",
            "shortages",
        ),
    ),
    "steps": Faults(
        step_mutants.MUTANTS,
        suite(
            "msg_store",
            "format/append_log",
            "format/room_ahead",
            "format/caller",
            "wal/flush_steps",
            "wal/driver",
        ),
    ),
    "end of a store": Faults(
        end_mutants.MUTANTS,
        suite("msg_store", "stop"),
    ),
    "collector": Faults(
        collector_mutants.MUTANTS,
        suite("msg_store", "gc/choose", "gc/copy", "gc/collector", "gc/faults", "gc/crash"),
    ),
    "archive": Faults(
        archive_mutants.MUTANTS,
        suite("msg_store", "archive/archive", "archive/archived_store", "archive/archive_machine"),
    ),
    "snapshots": Faults(
        snapshot_mutants.MUTANTS,
        suite("msg_store", "checkpoint/snapshot", "offline/snapshot")
        + suite("management", "snapshots/checking"),
    ),
    "transient store": Faults(
        transient_mutants.MUTANTS,
        suite("msg_store", "transient/store", "transient/faults", "transient/machine"),
    ),
    "tools": Faults(
        tool_mutants.MUTANTS,
        suite(
            "msg_store",
            "reading/record_table",
            "offline/audit",
            "offline/repair",
            "offline/salvage",
            "offline/offline_store",
            "index/compaction",
        ),
    ),
    "guaranteed multicast": Faults(
        gm_mutants.MUTANTS,
        suite("gm", "ring/view", "records", "ring/member", "node_links", "actor", "schedules"),
    ),
    "records in etcd": Faults(
        etcd_mutants.MUTANTS,
        suite("gm", "records", "ring/member", "stores", "actor")
        + suite("etcd", "gateway", "client", "batched"),
    ),
    "metadata in etcd": Faults(
        metadata_mutants.MUTANTS,
        suite("metadata/etcd", "codec", "replica", "session", "model"),
    ),
    "links": Faults(
        link_mutants.MUTANTS,
        suite(
            "actors",
            "links/handshake",
            "links/connection",
            "links/node_simulated",
            "links/schedules",
            "links/node",
        ),
    ),
    "links of processes": Faults(
        link_mutants.PROCESS_MUTANTS,
        suite("actors", "processes/link", "processes/host"),
    ),
    "fan-out": Faults(
        fan_out_mutants.MUTANTS,
        suite("broker", "channel/confirms", "channel/publishing/fan_out"),
    ),
    "transactions and direct replies": Faults(
        transaction_mutants.MUTANTS,
        suite(
            "broker",
            "channel/transaction",
            "channel/publishing/replies",
            "channel/transactions_model",
        ),
    ),
    "queues": Faults(
        broker_mutants.QUEUES,
        suite("actors", "credit")
        + suite(
            "broker",
            "queue/consumers/capacity",
            "queue/consumers/consumers",
            "queue/consumers/single_active_consumer",
            "queue/requeueing",
            "queue/amqqueue",
            "queue/pair",
            "channel/publishing/publish",
        ),
    ),
    "dead letters": Faults(
        broker_mutants.LETTERS,
        suite(
            "broker",
            "queue/dead_letters/dead_letters",
            "queue/dead_letters/dead_letter_cycles_model",
            "queue/limits/length_limits",
            "queue/limits/length_limits_model",
        ),
    ),
    "delays": Faults(
        broker_mutants.DELAYS,
        suite(
            "broker", "queue/delays/schedule", "queue/delays/delay_queue", "vhost/delayed_exchanges"
        )
        + suite("routing", "delayed"),
    ),
    "delivery counts": Faults(
        broker_mutants.DELIVERY_COUNTS,
        suite("broker", "queue/limits/delivery_counts", "queue/limits/delivery_limit")
        + suite("msg_store", "delivery_counts", "format/count_file"),
    ),
    "producers": Faults(
        producer_mutants.MUTANTS,
        suite(
            "broker",
            "queue/publishers/producers",
            "queue/publishers/deduplication",
            "channel/publishing/producers",
        )
        + suite("msg_store", "producers", "store_machine"),
    ),
    "definitions": Faults(
        broker_mutants.DEFINITIONS,
        suite("broker", "vhost/deletions", "vhost/vhost_starts", "node/bootstrap")
        + suite("metadata", "store"),
    ),
    "replicas": Faults(
        replica_mutants.MUTANTS,
        suite("mirroring/replicas", "record", "seq_runs", "stories", "schedules"),
    ),
    "mirrored queues": Faults(
        replica_mutants.QUEUES,
        suite("mirroring", "mirror_content", "mirrored_queue")
        + suite("msg_store", "wal/group_commit", "memtable/memtables"),
    ),
    "cluster": Faults(
        cluster_mutants.MUTANTS,
        suite(
            "broker/cluster",
            "publishing",
            "same_names",
            "same_rows",
            "waits",
            "late_news",
            "consuming",
            "node_down",
            "locators",
            "replies",
            "pending_deletes",
        )
        + suite("broker/remote", "mail_between_nodes"),
    ),
    "plug-ins": Faults(
        plugin_mutants.MUTANTS,
        suite("broker", "vhost/trace", "channel/interceptors", "vhost/auth/auth_backends"),
    ),
    "routing": Faults(
        routing_mutants.MUTANTS,
        suite("routing", "router", "topology", "headers", "topic", "hashing", "random_choice"),
    ),
}

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
    """One that has none, or several, names a scope or a piece that has changed."""
    assert len(mutant.places()) == 1


@pytest.mark.parametrize("faults", PARTS.values(), ids=PARTS)
def test_the_suite_is_there(faults: Faults) -> None:
    assert [name for name in faults.suite if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.slow
@each_mutant
def test_the_suite_kills(faults: Faults, mutant: Mutant, tmp_path: Path, seed: int) -> None:
    run = faults.run(mutant, tmp_path, seed)

    assert run.returncode == 1, run.stdout[-2_000:] + run.stderr[-500:]


@pytest.mark.parametrize(
    "name",
    [
        "everybody acknowledges before the lap is over",
        "the dead are erased at once",
        "an older record takes a view back",
    ],
)
def test_the_suite_of_guaranteed_multicast_kills(name: str, tmp_path: Path, seed: int) -> None:
    run = PARTS["guaranteed multicast"].run(gm_mutants.MUTANTS[name], tmp_path, seed)

    assert run.returncode == 1, run.stdout[-2_000:] + run.stderr[-500:]


@pytest.mark.slow
@pytest.mark.parametrize("faults", PARTS.values(), ids=PARTS)
def test_without_a_fault_the_planted_tree_passes(faults: Faults, tmp_path: Path, seed: int) -> None:
    run = faults.run(None, tmp_path, seed)

    assert run.returncode == 0, run.stdout[-2_000:] + run.stderr[-500:]
