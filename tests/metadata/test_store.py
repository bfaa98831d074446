"""The metadata store: rows survive, groups are one commit, damage is said clearly.

Tests: metadata/memory.py
"""

from __future__ import annotations

import errno
import resource
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.core.errors import StoreError
from leveret.metadata import environment
from leveret.metadata.environment import packed
from leveret.metadata.interface import Metadata
from leveret.metadata.memory import MemoryStore
from leveret.metadata.store import (
    ENCODED_HERE,
    OUTCOMES_PER_TURN,
    QUEUE_NOS,
    MetadataStore,
    _key,
)
from leveret.metadata.tables import (
    BindingRow,
    Contents,
    DeletedQueueRow,
    ExchangeRow,
    GlobalParameterRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    TopicPermissionRow,
    UserRow,
    VhostRow,
)
from rigs.waiting import wait_until

ROWS: list[Row] = [
    VhostRow("/", "the default", ["a", "b"]),
    UserRow("guest", b"\x00salt", "rabbit_password_hashing_sha256", ["administrator"], {"n": 1}),
    PermissionRow("guest", "/", ".*", "", "^a"),
    TopicPermissionRow("guest", "/", "amq.topic", ".*", "^{vhost}"),
    ExchangeRow("/", "x", "topic", True, False, True, {"alternate-exchange": ("S", b"ae")}),
    QueueRow("/", "q\udcff", True, False, {"x-message-ttl": ("s", 5)}, 7, "guest"),
    BindingRow("/", "x" * 255, "queue", "q" * 255, b"\xff" * 255, {"a": ("A", [("V", None)])}),
    PolicyRow("/", "p", "^q", {"max-length": 1, "nested": {"k": [1.5, None]}}, 3, "queues"),
    PolicyRow("/", "p", "^q", {"max-length": 2}, 0, "queues", True),
    ParameterRow("/", "vhost-limits", "limits", {"max-queues": 5}),
    GlobalParameterRow("cluster_name", "here"),
    DeletedQueueRow(7),
]


class Owner:
    """The thread that owns the store, and the outcomes brought to it."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.outcomes: list[object] = []

    def deliver(self, call: Callable[[], None]) -> None:
        self.calls.put(call)

    def note(self, name: object) -> Callable[[StoreError | None], None]:
        return lambda error: self.outcomes.append(name if error is None else error)

    def run(self, count: int) -> list[object]:
        """Run deliveries until there are so many outcomes."""
        while len(self.outcomes) < count:
            self.calls.get(timeout=10)()
        return self.outcomes


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def opened(tmp_path: Path, owner: Owner) -> Iterator[Callable[..., MetadataStore]]:
    stores: list[MetadataStore] = []

    def opened(name: str = "metadata", map_bytes: int = 1 << 20) -> MetadataStore:
        stores.append(MetadataStore(tmp_path / name, owner.deliver, map_bytes))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def written(
    store: Metadata, owner: Owner, puts: list[Row], deletes: list[Row] | None = None
) -> None:
    store.write(puts, deletes or [], owner.note("ok"))
    assert owner.run(len(owner.outcomes) + 1)[-1] == "ok"


def rows_of(contents: Contents) -> list[str]:
    return sorted(map(repr, contents.rows()))


def test_rows_of_all_tables_come_back_after_a_restart(opened, owner: Owner) -> None:
    store = opened()
    written(store, owner, ROWS)
    store.close()

    assert rows_of(opened().load()) == sorted(map(repr, ROWS))


def test_a_row_with_the_same_key_replaces_the_other(opened, owner: Owner) -> None:
    store = opened()
    written(store, owner, [QueueRow("/", "q", True, False, {}, 1)])
    written(store, owner, [QueueRow("/", "q", True, True, {}, 2)])

    assert [each.queue_no for each in store.load().queues] == [2]


def test_deleting_needs_the_key_only_and_comes_before_the_puts(opened, owner: Owner) -> None:
    store = opened()
    written(store, owner, [VhostRow("a"), VhostRow("b")])

    written(
        store,
        owner,
        [VhostRow("b", "new")],
        [VhostRow("a", "whatever"), VhostRow("b"), VhostRow("c")],
    )

    assert [(each.name, each.description) for each in store.load().vhosts] == [("b", "new")]


def test_the_order_of_a_bindings_arguments_is_not_part_of_its_key() -> None:
    one = BindingRow("/", "x", "queue", "q", b"", {"a": ("I", 1), "b": ("I", 2)})
    two = BindingRow("/", "x", "queue", "q", b"", {"b": ("I", 2), "a": ("I", 1)})
    three = BindingRow("/", "x", "queue", "q", b"", {"b": ("l", 2), "a": ("I", 1)})

    assert one.key == two.key
    assert one.key != three.key


def test_outcomes_come_in_the_order_of_the_writes_and_all_waiting_ones_together(
    opened, owner: Owner
) -> None:
    store = opened()
    with store._environment._lock:  # the first commit waits here, the rest behind it
        for number in range(100):
            store.write([VhostRow(str(number))], [], owner.note(number))

    assert owner.run(100) == list(range(100))
    assert owner.calls.qsize() == 0
    transactions = store._environment._lmdb.info()["last_txnid"]
    assert transactions <= 1 + 2 + 1  # made, then one or two groups (thread may take one early)


def test_an_outcome_that_raises_keeps_nothing_from_the_others(opened, owner: Owner) -> None:
    def fail(_: StoreError | None) -> None:
        raise ZeroDivisionError

    store = opened()
    with store._environment._lock:
        store.write([VhostRow("a")], [], fail)
        store.write([VhostRow("b")], [], owner.note("b"))
        store.write([VhostRow("c")], [], owner.note("c"))

    with pytest.raises(ZeroDivisionError):
        owner.calls.get(timeout=10)()
    assert owner.run(2) == ["b", "c"]


def test_the_map_grows(opened, owner: Owner) -> None:
    store = opened(map_bytes=64 * 1024)

    for number in range(20):
        written(store, owner, [GlobalParameterRow(str(number), "v" * 50_000)])

    assert len(store.load().global_parameters) == 20
    store.close()
    assert len(opened(map_bytes=64 * 1024).load().global_parameters) == 20


def test_a_write_that_the_disk_refuses_is_reported_and_leaves_nothing(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(changes: object) -> None:
        raise lmdb.DiskError("No space left on device")

    store = opened()
    with monkeypatch.context() as patched:
        patched.setattr(store._environment, "_write", full)
        store.write([VhostRow("a")], [], owner.note("a"))
        outcome = owner.run(1)[0]

    assert isinstance(outcome, StoreError)
    assert "No space left on device" in str(outcome)
    written(store, owner, [VhostRow("b")])
    assert [each.name for each in store.load().vhosts] == ["b"]


def test_close_commits_what_is_waiting_and_leaves_no_thread(opened, owner: Owner) -> None:
    before = threading.active_count()
    store = opened()
    for number in range(50):
        store.write([VhostRow(str(number))], [], owner.note(number))

    store.close()
    store.close()

    assert threading.active_count() == before
    assert owner.run(50) == list(range(50))
    with pytest.raises(StoreError, match="is closed"):
        store.write([], [], owner.note("late"))
    assert len(opened().load().vhosts) == 50


def test_a_waiting_writer_keeps_nothing_of_the_last_group(opened, owner: Owner) -> None:
    store = opened()

    then = owner.note("ok")
    kept = weakref.ref(then)
    store.write([VhostRow("v")], [], then)
    del then
    owner.run(1)

    wait_until(lambda: kept() is None)  # its thread goes back to wait


def test_outcomes_of_a_group_come_in_order_and_a_few_a_turn(opened, owner: Owner) -> None:
    store = opened()
    count = 5 * OUTCOMES_PER_TURN
    with store._environment._lock:
        for number in range(count):
            store.write([VhostRow(f"v{number}")], [], owner.note(number))
    turns = []
    while len(owner.outcomes) < count:
        before = len(owner.outcomes)
        owner.calls.get(timeout=10)()
        turns.append(len(owner.outcomes) - before)

    assert owner.outcomes == list(range(count))
    assert max(turns) <= OUTCOMES_PER_TURN


def test_an_outcome_that_raises_does_not_hold_the_others_back(opened, owner: Owner) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("one of them")

    store = opened()
    with store._environment._lock:
        store.write([VhostRow("first")], [], fails)
        store.write([VhostRow("second")], [], owner.note("second"))
    with pytest.raises(RuntimeError, match="one of them"):
        owner.run(1)

    assert owner.run(1) == ["second"]


def test_a_writer_that_died_is_noticed(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: SimpleQueue[object] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", hooked.put)

    def gone(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    store = opened()
    store._deliver = gone
    store.write([], [], owner.note("never"))
    hooked.get(timeout=10)

    with pytest.raises(StoreError, match="metadata writer has died: Event loop is closed"):
        store.write([], [], owner.note("late"))


def test_the_same_directory_is_not_opened_twice_in_one_process(
    opened, tmp_path: Path, owner: Owner
) -> None:
    store = opened()
    (tmp_path / "link").symlink_to(tmp_path / "metadata")

    for name in ("metadata", "link"):
        with pytest.raises(StoreError, match="is open in this process already"):
            opened(name)

    store.close()
    opened("link").close()


def test_the_directory_is_for_its_owner_only(opened, tmp_path: Path) -> None:
    opened()

    assert (tmp_path / "metadata").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "metadata" / "data.mdb").stat().st_mode & 0o777 == 0o600


def test_many_rows_are_one_write_and_a_bad_one_fails_alone(opened, owner: Owner) -> None:
    store = opened()
    many: list[Row] = [VhostRow(str(number)) for number in range(ENCODED_HERE + 1)]
    wrong: list[Row] = [*many, PolicyRow("/", "p", "", {"n": 1 << 70})]

    store.write(many, [], owner.note("many"))
    store.write(wrong, many[:1], owner.note("wrong"))
    store.write([], many[1:], owner.note("gone"))
    outcomes = owner.run(3)

    assert outcomes[0] == "many"
    assert "metadata cannot be written: " in str(outcomes[1])
    assert outcomes[2] == "gone"
    assert store.load().rows() == many[:1]


def test_the_boot_epoch_grows(opened) -> None:
    store = opened()
    first = store.next_boot_epoch()
    store.close()

    assert opened().next_boot_epoch() == first + 1


def test_queue_numbers_never_come_again_even_without_a_row(opened) -> None:
    seen: list[int] = []
    for _ in range(3):
        store = opened()
        store.next_boot_epoch()
        seen += [store.next_queue_no() for _ in range(QUEUE_NOS // 2 + 1)]
        seen += [store.next_queue_no() for _ in range(QUEUE_NOS // 2 + 1)]
        store.close()

    assert seen == sorted(set(seen))
    assert seen[0] == 1


def test_the_thread_reserves_queue_numbers_ahead(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.next_boot_epoch()
    here, commit = list[object](), environment.Environment.commit

    def noted(self: environment.Environment, changes: list[environment.Change]) -> None:
        if threading.current_thread() is threading.main_thread():
            here.append(changes)
        commit(self, changes)

    monkeypatch.setattr(environment.Environment, "commit", noted)
    for _ in range(3):
        for _ in range(QUEUE_NOS // 2):
            store.next_queue_no()
        store.next_queue_no()
        owner.calls.get(timeout=10)()
        for _ in range(QUEUE_NOS // 2 - 1):
            store.next_queue_no()

    assert here == []


@pytest.mark.parametrize("late", [False, True])
def test_a_reservation_that_comes_late_takes_no_number_back(
    opened, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The thread hangs while a caller uses up more than the block that it was to reserve."""
    store = opened()
    store.next_boot_epoch()
    goes_on, commit = threading.Event(), environment.Environment.commit

    def held(self: environment.Environment, changes: list[environment.Change]) -> None:
        if threading.current_thread() is not threading.main_thread() and late:
            assert goes_on.wait(10)
        commit(self, changes)

    monkeypatch.setattr(environment.Environment, "commit", held)
    seen = [store.next_queue_no() for _ in range(2 * QUEUE_NOS + 1)]
    goes_on.set()
    store.close()

    assert seen == list(range(1, len(seen) + 1))
    assert opened().next_queue_no() > seen[-1]


def test_queue_numbers_are_safe_without_a_boot_epoch_too(opened) -> None:
    store = opened()
    first = store.next_queue_no()
    store.close()

    assert opened().next_queue_no() > first


def put_raw(directory: Path, key: bytes, value: bytes) -> None:
    with lmdb.open(str(directory), lib_version=0) as raw, raw.begin(write=True) as transaction:
        transaction.put(key, value)


def test_a_newer_format_is_refused(opened, tmp_path: Path) -> None:
    opened().close()
    put_raw(tmp_path / "metadata", environment.FORMAT_KEY, packed(2))

    with pytest.raises(StoreError, match="has format 2, this version of Leveret reads up to 1"):
        opened()


def test_another_programs_environment_is_refused(opened, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    put_raw(tmp_path / "metadata", b"key", b"value")

    with pytest.raises(StoreError, match="holds no metadata of Leveret"):
        opened()


def test_a_file_that_is_no_lmdb_file_is_refused_and_can_be_tried_again(
    opened, tmp_path: Path
) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "data.mdb").write_bytes(b"not at all" * 1000)

    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be opened"):
            opened()


def test_a_file_that_was_cut_off_is_refused_wherever_the_cut_is(
    opened, owner: Owner, tmp_path: Path
) -> None:
    store = opened()
    written(store, owner, [GlobalParameterRow("big", "v" * 20_000), *ROWS])
    written(store, owner, [GlobalParameterRow(str(number), "v" * 500) for number in range(50)])
    used = 4096 * (store._environment._lmdb.info()["last_pgno"] + 1)
    store.close()
    data = tmp_path / "metadata" / "data.mdb"
    whole = data.read_bytes()
    assert 15 * 4096 < used < len(whole)

    for cut in (2 * 4096, 3 * 4096 + 7, used // 2, used - 4096, used - 1):
        data.write_bytes(whole[:cut])
        with pytest.raises(
            StoreError, match=f"metadata is damaged: {data}: the file ends before page"
        ):
            opened()
    data.write_bytes(whole[:used])
    assert len(opened().load().global_parameters) == 52


def test_a_value_in_the_pages_of_a_longer_one_is_no_damage(opened, owner: Owner) -> None:
    for size in (40_000, 9_000, 30_000, 5_000):
        store = opened()
        written(store, owner, [GlobalParameterRow("big", "v" * size)])
        store.close()

    assert [len(each.value) for each in opened().load().global_parameters] == [5_000]


def test_pages_taken_and_freed_in_one_transaction_are_no_damage(opened, owner: Owner) -> None:
    store = opened()
    big = GlobalParameterRow("big", "v" * 100_000)
    with store._environment._lock:
        store.write([VhostRow("first")], [], owner.note(0))
        store.write([big], [], owner.note(1))
        store.write([VhostRow("v")], [big], owner.note(2))
    owner.run(3)
    store.close()

    assert {each.name for each in opened().load().vhosts} == {"first", "v"}


def test_a_map_that_cannot_grow_fails_the_write_and_nothing_else(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, size_bytes: int) -> None:
        raise OSError(27, "File too large")

    store = opened(map_bytes=64 * 1024)
    with monkeypatch.context() as patched:
        patched.setattr(environment.os, "truncate", refuse)
        store.write([GlobalParameterRow("big", "v" * 100_000)], [], owner.note("big"))
        outcome = owner.run(1)[0]

    assert isinstance(outcome, StoreError)
    assert "metadata cannot grow to 131072 bytes" in str(outcome)
    written(store, owner, [VhostRow("v")])
    written(store, owner, [GlobalParameterRow("big", "v" * 100_000)])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the size of the process")
def test_without_addresses_for_a_larger_map_one_write_fails(opened, owner: Owner) -> None:
    store = opened(map_bytes=64 << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    status = Path("/proc/self/status").read_text()
    used_bytes = int(status.partition("VmSize:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (32 << 20), hard))
    try:
        with pytest.raises(StoreError, match="metadata cannot grow"):
            store._environment._grow()
        written(store, owner, [VhostRow("v")])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    written(store, owner, [VhostRow("w")])
    store._environment._grow()
    assert store._environment._lmdb.info()["map_size"] == 128 << 20


def test_a_damaged_record_is_refused(opened, owner: Owner, tmp_path: Path) -> None:
    store = opened()
    written(store, owner, [GlobalParameterRow("name", "findable value")])
    store.close()
    data = tmp_path / "metadata" / "data.mdb"
    whole = data.read_bytes()
    assert whole.count(b"findable value") >= 1
    data.write_bytes(whole.replace(b"findable value", b"findable valuf"))

    with pytest.raises(StoreError, match="metadata record is damaged"):
        opened().load()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (b"\x63some", packed(["a"]), "table 99, which this version does not know"),
        (b"\x01some", packed(["a", "", [], "", "from the future"]), "does not fit VhostRow"),
    ],
)
def test_a_record_from_the_future_is_refused(
    opened, tmp_path: Path, key: bytes, value: bytes, text: str
) -> None:
    opened().close()
    put_raw(tmp_path / "metadata", key, value)

    with pytest.raises(StoreError, match=text):
        opened().load()


def test_fields_that_an_older_version_did_not_have_get_their_defaults(
    opened, tmp_path: Path
) -> None:
    opened().close()
    put_raw(tmp_path / "metadata", _key(VhostRow("v")), packed(["v"]))

    assert opened().load().vhosts == [VhostRow("v")]


names = st.sampled_from(["a", "b", "c", "d"])
changes = st.lists(
    st.tuples(
        st.lists(st.builds(VhostRow, names, st.text(max_size=3)), max_size=3),
        st.lists(st.builds(VhostRow, names), max_size=3),
    ),
    max_size=8,
)


@given(changes)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_lmdb_and_memory_keep_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[Row], list[Row]]]
) -> None:
    owner = Owner()
    memory: Metadata = MemoryStore(owner.deliver)
    disk: Metadata = MetadataStore(tmp_path_factory.mktemp("m"), owner.deliver)
    for puts, deletes in steps:
        for store in (memory, disk):
            store.write(puts, deletes, owner.note("ok"))
    owner.run(2 * len(steps))

    assert rows_of(memory.load()) == rows_of(disk.load())
    disk.close()


def test_the_memory_store_has_the_same_edges(owner: Owner) -> None:
    store = MemoryStore(owner.deliver)

    assert [store.next_queue_no(), store.next_queue_no()] == [1, 2]
    assert [store.next_boot_epoch(), store.next_boot_epoch()] == [1, 2]
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.write([], [], owner.note("late"))


def panic(_: object) -> None:
    raise lmdb.PanicError("MDB_PANIC: Update of meta page failed or environment had fatal error")


def test_an_environment_that_lmdb_gives_up_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = environment.Environment(tmp_path / "m", 1 << 20)
    with monkeypatch.context() as patched:
        patched.setattr(opened, "_write", panic)
        before = opened._lmdb
        with pytest.raises(StoreError, match="metadata cannot be written: MDB_PANIC"):
            opened.commit([(b"\x01k", packed("v"))])

    opened.commit([(b"\x01k", packed("v"))])
    assert opened._lmdb is not before
    assert opened.rows() == [(b"\x01k", packed("v"))]
    opened.close()


def test_the_last_room_of_a_disk_is_for_counters_and_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = environment.Environment(tmp_path / "m", 1 << 20)
    opened.commit([(b"\x01k", packed("v"))])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(environment, "keep_room", full)
    with pytest.raises(StoreError, match="No space left on device"):
        opened.commit([(b"\x01l", bytes(600_000))])
    opened.commit([(b"\x01k", None)])
    opened.commit([(b"\x00boot_epoch", bytes(300_000))], may_use_reserve=True)
    assert opened.rows() == []
    opened.close()


@contextmanager
def without_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_environment_that_cannot_be_opened_anew_is_opened_by_a_later_write(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = opened()
    written(store, owner, [VhostRow("a"), VhostRow("b")])
    with monkeypatch.context() as patched, without_descriptors():
        patched.setattr(store._environment, "_write", panic)
        store.write([VhostRow("c")], [], owner.note("c"))
        assert isinstance(owner.run(2)[-1], StoreError)
        patched.undo()
        for number, write in enumerate([([VhostRow("d")], []), ([], [VhostRow("a")])]):
            store.write(*write, owner.note("written"))
            assert "Too many open files" in str(owner.run(3 + number)[-1])
        with pytest.raises(StoreError, match="Too many open files"):
            store.copy_to(tmp_path / "copy")

    store.copy_to(tmp_path / "copy")
    written(store, owner, [VhostRow("e")], [VhostRow("b")])
    assert [each.name for each in store.load().vhosts] == ["a", "e"]


def test_a_lost_environment_can_be_closed(opened, owner: Owner) -> None:
    store = opened()
    written(store, owner, [VhostRow("a")])
    with pytest.MonkeyPatch.context() as patched, without_descriptors():
        patched.setattr(store._environment, "_write", panic)
        for _ in range(2):
            store.write([], [VhostRow("a")], owner.note("refused"))
        owner.run(3)
        store.close()

    assert [each.name for each in opened().load().vhosts] == ["a"]


class NoLargerMap:
    """An LMDB environment whose map cannot change, and is lost."""

    def __init__(self, env: object) -> None:
        self._env = env

    def __getattr__(self, name: str) -> object:
        return getattr(self._env, name)

    def set_mapsize(self, _: int) -> None:
        raise lmdb.MemoryError("mdb_env_set_mapsize: Cannot allocate memory")


def test_a_map_that_neither_grows_nor_comes_back_does_so_at_a_later_write(
    opened, owner: Owner
) -> None:
    store = opened(map_bytes=64 * 1024)
    big = GlobalParameterRow("big", "v" * 100_000)
    store._environment._lmdb = NoLargerMap(store._environment._lmdb)
    store._environment._room_to = 1 << 30  # so that it needs no descriptor
    with without_descriptors():
        store.write([big], [], owner.note("big"))
        assert "metadata cannot grow to 131072 bytes" in str(owner.run(1)[0])
        store.write([big], [], owner.note("big"))
        assert "Too many open files" in str(owner.run(2)[1])

    written(store, owner, [big])
    assert store.load().global_parameters == [big]


@pytest.mark.parametrize("step", ["_keep_reserve", "_write", "_grow"])
@pytest.mark.parametrize(
    "error",
    [lmdb.Error("closed"), OSError(5, "closed"), MemoryError("closed"), TypeError("closed")],
)
def test_every_error_of_a_commit_is_an_answer(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    def full(_: object) -> None:
        raise lmdb.MapFullError("full")

    store = opened()
    with monkeypatch.context() as patched:
        if step == "_grow":
            patched.setattr(store._environment, "_write", full)
        patched.setattr(store._environment, step, fail)
        store.write([VhostRow("a")], [], owner.note("a"))
        outcome = owner.run(1)[0]

    assert isinstance(outcome, StoreError)
    assert "metadata cannot be written: " in str(outcome)
    assert "closed" in str(outcome)
    written(store, owner, [VhostRow("b")])
    assert [each.name for each in store.load().vhosts] == ["b"]


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def fails_with_puts(store: MetadataStore) -> Callable[[list[environment.Change]], None]:
    real = store._environment._write

    def write(changes: list[environment.Change]) -> None:
        if any(value is not None for _, value in changes):
            raise lmdb.DiskError("No space left on device")
        real(changes)

    return write


@pytest.mark.parametrize("refuses", ["the reserve", "LMDB"])
def test_a_full_disk_refuses_the_puts_of_a_group_and_takes_its_deletions(
    opened, owner: Owner, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    store = opened()
    written(store, owner, [VhostRow("a"), VhostRow("b"), VhostRow("c")])
    if refuses == "LMDB":
        monkeypatch.setattr(store._environment, "_write", fails_with_puts(store))
    else:
        store._environment._room_to = 0
        monkeypatch.setattr(environment, "keep_room", no_room)
    bad: list[Row] = [PolicyRow("/", "p", "", {"n": 1 << 70})] * (ENCODED_HERE + 1)
    owner.outcomes.clear()
    with store._environment._lock:
        store.write([], [], owner.note("first"))  # the thread waits with it, or takes all at once
        store.write([], [VhostRow("a")], owner.note("a is deleted"))
        store.write([VhostRow("d")], [], owner.note("d"))
        store.write([VhostRow("e")], [VhostRow("b")], owner.note("b becomes e"))
        store.write(bad, [], owner.note("bad"))
        store.write([], [VhostRow("c")], owner.note("c is deleted"))

    *_, a, d, both, wrong, c = owner.run(6)
    assert (a, c) == ("a is deleted", "c is deleted")
    assert "No space left on device" in str(d)
    assert both is d
    assert "No space left" not in str(wrong)
    assert isinstance(wrong, StoreError)
    assert [each.name for each in store.load().vhosts] == ["b"]
