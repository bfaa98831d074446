"""The broker inside a service's event loop and supervision tree; it leaves nothing behind.

Tests: server/broker.py
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest

import leveret.server
from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.broker.node.node import VHOSTS
from leveret.broker.vhost.states import UP
from leveret.client.asynchronous import connect
from leveret.client.target import Target
from leveret.core.batching import BALANCED, LOW, Batching
from leveret.core.errors import ConfigError, StoreError
from leveret.core.gil_yielding import GilYielding
from leveret.management.node_admin import NodeAdmin
from leveret.metadata.store import MetadataStore
from leveret.metadata.tables import BindingRow, Row, VhostRow
from leveret.server import Address, Broker, Config, child_spec
from leveret.server.broker import BrokerFailedError
from leveret.server.cluster import ClusterMember
from leveret.server.process import AddressUnavailableError, Bound, DataDirectoryError
from leveret.supervisors.requests import TerminateChild, WhichChildren
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.supervisors.tree_view import walk
from rigs.waiting import eventually

pytestmark = pytest.mark.usefixtures("_others_are_frozen")

FREE = (Address("127.0.0.1", 0),)
SOON_S = 10.0


def config(folder: Path | None, **more: Any) -> Config:
    return Config(listen=FREE, data_dir=folder, **more)


@pytest.fixture(params=["on disk", "in memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == "on disk" else None


async def round_trip(broker: Broker, queue: str = "q") -> None:
    """Send a message through a broker."""
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue)
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), queue)
        message = await declared.get(timeout=SOON_S)
        await message.ack()
        assert message.body == b"hello"


# In a foreign loop.


async def test_it_runs_beside_the_other_tasks_of_a_loop(folder: Path | None) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    async with Broker(config(folder)) as broker:
        await round_trip(broker)
        before = ticks
        await round_trip(broker)
        assert ticks > before
    assert not ticking.done()
    ticking.cancel()


async def test_several_live_in_one_loop_and_keep_apart(tmp_path: Path) -> None:
    async with (
        Broker(config(tmp_path / "a")) as one,
        Broker(config(tmp_path / "b")) as two,
        Broker(config(None)) as three,
        Broker(config(None)) as four,
    ):
        brokers = [one, two, three, four]
        for broker in brokers:
            await round_trip(broker)

        assert len({broker.addresses[0].port for broker in brokers}) == 4
        assert len({broker.node_id for broker in brokers}) == 4
        one.node.vhosts["/"].topology.remove_queue("q")
        assert [len(broker.node.vhosts["/"].topology.queues) for broker in brokers] == [0, 1, 1, 1]


async def test_one_object_starts_again_after_its_stop(folder: Path | None) -> None:
    broker = Broker(config(folder))
    for _ in range(3):
        async with broker:
            await round_trip(broker)


async def test_a_data_directory_may_be_given_as_text(tmp_path: Path) -> None:
    folder: Any = str(tmp_path / "data")
    async with Broker(config(folder)):
        assert "lock" in os.listdir(folder)


async def test_it_keeps_its_identity_and_counts_its_starts(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        async with Broker(config(tmp_path)) as broker:
            seen.append((broker.node_id, broker.node.epochs.current))

    assert seen == [(seen[0][0], 1), (seen[0][0], 2)]


async def test_stop_is_harmless_when_repeated_or_too_early(tmp_path: Path) -> None:
    broker = Broker(config(tmp_path))
    await broker.stop()
    await broker.start()
    await broker.stop()
    await broker.stop()


@pytest.mark.parametrize("part", [Bound, MetadataStore, GilYielding])
async def test_a_bug_in_the_end_of_a_part_leaves_the_others_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Any
) -> None:
    close = part.close

    def broken(closed: Any) -> None:
        close(closed)
        raise TypeError("a bug")

    broker = Broker(config(tmp_path))
    await broker.start()
    monkeypatch.setattr(part, "close", broken)
    with pytest.raises(TypeError, match="a bug"):
        await broker.stop()
    monkeypatch.undo()

    async with Broker(config(tmp_path)) as following:
        assert following.degraded == {}


async def test_clients_are_told_that_it_stops(folder: Path | None) -> None:
    async with Broker(config(folder)) as broker:
        reader, writer = await asyncio.open_connection(*broker.addresses[0])
        writer.write(b"AMQP")
        client = await connect(Target(*broker.addresses[0], "guest", "guest", "/"))
    await asyncio.wait_for(client.ended, SOON_S)

    assert "320" in str(client.error)
    assert "CONNECTION_FORCED - broker forced connection closure" in str(client.error)
    assert await reader.read() == b""
    writer.close()


async def test_an_in_memory_broker_touches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Broker(config(None)) as broker:
        await round_trip(broker)
        assert (await NodeAdmin(broker).status())["data_dir"] is None

    assert os.listdir(tmp_path) == []


async def test_wait_ended_tells_that_the_tree_has_ended(folder: Path | None) -> None:
    async with Broker(config(folder)) as broker:
        waiting = asyncio.create_task(broker.wait_ended())
        kill_tree(broker)

        with pytest.raises(BrokerFailedError, match="has ended: killed"):
            await asyncio.wait_for(waiting, SOON_S)


async def test_an_exception_in_the_block_stops_it_and_goes_on(folder: Path | None) -> None:
    ports = []

    async def fail() -> None:
        async with Broker(config(folder)) as broker:
            ports.append(broker.addresses[0].port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    await assert_nobody_listens(ports[0])


async def test_a_cancelled_block_is_stopped_before_the_cancellation_goes_on(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def serve() -> None:
        async with Broker(config(tmp_path)):
            started.set()
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await started.wait()
    serving.cancel()
    await asyncio.sleep(0)
    serving.cancel()  # once more, while it stops
    with pytest.raises(asyncio.CancelledError):
        await serving

    async with Broker(config(tmp_path)):
        """The directory is free again."""


# After the end.


def descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # that of the listing itself
    return found


def locks() -> dict[str, list[str]]:
    """The locks on each descriptor.

    Not from /proc/locks: it is read in parts, and lines are missing or twice in it when another
    process locks a file between two of them.
    """
    found = {}
    for name in os.listdir("/proc/self/fdinfo"):
        try:
            lines = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
        except FileNotFoundError:
            continue  # that of the listing itself
        found[name] = [line for line in lines if line.startswith("lock:")]
    return {name: lines for name, lines in found.items() if lines}


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def live(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


def state_of_process() -> dict[str, Any]:
    """Everything that a library could leave behind or change."""
    loop = asyncio.get_running_loop()
    root, own = logging.getLogger(), logging.getLogger("leveret")
    return {
        "descriptors": descriptors(),
        "threads": set(threading.enumerate()),
        "tasks": asyncio.all_tasks(),
        "timers": [each for each in getattr(loop, "_scheduled", ()) if not each.cancelled()],
        "callbacks": list(getattr(loop, "_ready", ())),
        "locks": locks(),
        "children": children(),
        "actors": live(OtpActor),
        "runtimes": live(Runtime),
        "gc": (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count() > 0),
        "switch interval": sys.getswitchinterval(),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "logging": [(list(each.handlers), each.level, each.propagate) for each in (root, own)],
        "exception handler": loop.get_exception_handler(),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "directory": os.getcwd(),
        "umask": umask(),
        "environment": dict(os.environ),
    }


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_nothing_is_left_after_the_block_and_nothing_was_changed(folder: Path | None) -> None:
    async with Broker(config(folder)) as broker:  # modules loaded on first use stay loaded
        await round_trip(broker)
    del broker
    await quiet()
    before, frozen = state_of_process(), gc.get_freeze_count()
    during: dict[str, Any] = {}
    async with Broker(config(folder)) as broker:
        await round_trip(broker)
        open_ends = [await asyncio.open_connection(*broker.addresses[0]) for _ in range(3)]
        during.update(state_of_process())
        del during["timers"], during["callbacks"]  # they would keep the broker
        node = weakref.ref(broker.node)
    for _, writer in open_ends:
        writer.close()
        await writer.wait_closed()
    del broker, open_ends, writer
    await quiet()

    assert during["descriptors"] != before["descriptors"]
    assert (during["locks"] != before["locks"]) == (folder is not None)
    assert during["actors"] > before["actors"]
    unchanged = ("gc", "switch interval", "signals", "logging", "exception handler", "hooks",
                 "directory", "umask", "environment", "children")  # fmt: skip
    assert {key: during[key] for key in unchanged} == {key: before[key] for key in unchanged}
    await left_as(before)
    assert gc.get_freeze_count() <= frozen  # what other tests have frozen may have ended
    assert node() is None


async def quiet() -> None:
    """Let the loop complete pending closes."""
    for _ in range(20):
        await asyncio.sleep(0)
    gc.collect()


async def left_as(before: dict[str, Any]) -> None:
    """See that the process is as before; a thread that has ended is still listed for a moment."""

    def changes() -> dict[str, Any]:
        now = state_of_process()
        return {key: (before[key], now[key]) for key in before if now[key] != before[key]}

    await eventually(lambda: not changes(), changes)


def taken_port(folder: Path) -> tuple[Config, type[Exception], Callable[[], object]]:
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    place = Config(listen=(*FREE, Address("127.0.0.1", port)), data_dir=folder)
    return place, AddressUnavailableError, other.close


def locked_directory(folder: Path) -> tuple[Config, type[Exception], Callable[[], object]]:
    from leveret.server.process import DataDirectory

    return config(folder), DataDirectoryError, DataDirectory(folder).close


def broken_metadata(folder: Path) -> tuple[Config, type[Exception], Callable[[], object]]:
    (folder / "metadata").mkdir(parents=True)
    data = folder / "metadata" / "data.mdb"
    data.write_bytes(b"no metadata" * 1000)
    return config(folder), StoreError, data.unlink


def damaged_row(folder: Path) -> tuple[Config, type[Exception], Callable[[], object]]:
    store = MetadataStore(folder / "metadata", lambda run: run())
    store._environment.commit([(b"\x01damaged", b"not a record")])
    store.close()

    def repair() -> None:
        store = MetadataStore(folder / "metadata", lambda run: run())
        store._environment.commit([(b"\x01damaged", None)])
        store.close()

    return config(folder), StoreError, repair


def missing_plugin(folder: Path) -> tuple[Config, type[Exception], Callable[[], object]]:
    given = config(folder, auth_backends=("missing",))
    return given, ConfigError, lambda: object.__setattr__(given, "auth_backends", ("internal",))


@pytest.mark.parametrize(
    "fault", [taken_port, locked_directory, broken_metadata, damaged_row, missing_plugin]
)
async def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path, fault: Any) -> None:
    given, error, mend = fault(tmp_path)
    before = state_of_process()

    for _ in range(2):
        with pytest.raises(error):
            await Broker(given).start()
        await quiet()

    await left_as(before)
    mend()
    async with Broker(given) as broker:
        await round_trip(broker)


async def test_a_start_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)):
        pass  # modules loaded on first use stay loaded
    await quiet()
    before = state_of_process()
    for rounds in range(6):
        starting = asyncio.create_task(Broker(config(tmp_path)).start())
        for _ in range(rounds):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        del starting
    await quiet()

    await left_as(before)


async def assert_nobody_listens(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


# As a child of a service's own supervisor.


def kill_tree(broker: Broker) -> None:
    assert broker._root is not None
    broker.runtime.exit(broker._root, "kill")


class Worker(OtpActor):
    """The service's own actor."""

    def init(self) -> None:
        self.runtime.register("worker", self.ref)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Embedded:
    """A service whose supervisor has a broker among its children."""

    def __init__(self, folder: Path | None, **options: Any) -> None:
        self.config = Config(listen=(Address("127.0.0.1", free_port()),), data_dir=folder)
        self.runtime = Runtime()
        children = (child_spec(self.config, **options), ChildSpec("worker", Worker))
        spec = SupervisorSpec("one_for_one", 3, 60.0, children)
        self.supervisor = self.runtime.spawn(Supervisor, spec, label="service")

    async def child(self) -> Ref:
        """The broker's address, when it is ready."""
        rows = await self.runtime.call(self.supervisor, WhichChildren(), SOON_S)
        ref: Ref = next(row[1] for row in rows if row[0] == "broker")
        return ref

    async def round_trip(self) -> None:
        address = self.config.listen[0]
        connection = await aio_pika.connect(f"amqp://guest:guest@{address}", timeout=SOON_S)
        async with connection:
            await connection.channel()

    def broker(self) -> Broker:
        found = [each for each in gc.get_objects() if isinstance(each, Broker) and each._root]
        return next(each for each in found if each.config is self.config)


@asynccontextmanager
async def embedded(folder: Path | None, **options: Any) -> AsyncIterator[Embedded]:
    service = Embedded(folder, **options)
    yield service
    await service.runtime.shutdown()


async def test_a_supervisor_starts_it_and_waits_until_clients_can_connect(
    folder: Path | None,
) -> None:
    async with embedded(folder) as service:
        await service.child()
        await service.round_trip()

        labels = [node.label for node in walk(service.runtime, service.supervisor)]
        assert labels == ["service", "broker", "worker"]


async def test_a_supervisor_that_stops_stops_it(folder: Path | None) -> None:
    async with embedded(folder) as service:
        await service.child()
    await assert_nobody_listens(service.config.listen[0].port)
    if folder is not None:
        async with Broker(config(folder)):
            """The directory is free again."""


@pytest.mark.parametrize(
    "how", ["its tree is killed", "its service is killed", "a part of its tree is killed"]
)
async def test_a_broker_that_dies_is_restarted_on_the_same_port(
    folder: Path | None, how: str
) -> None:
    async with embedded(folder) as service:
        first = await service.child()
        worker = service.runtime.whereis("worker")
        await service.round_trip()
        broker = service.broker()
        ended = asyncio.ensure_future(service.runtime.join(first))
        if how == "its tree is killed":
            kill_tree(broker)
        elif how == "its service is killed":
            service.runtime.exit(first, "kill")
        else:
            vhosts = broker.runtime.whereis(VHOSTS)
            assert vhosts is not None
            broker.runtime.exit(vhosts, "kill")
        del broker

        await asyncio.wait_for(ended, SOON_S)
        second = await service.child()
        assert second is not first
        await service.round_trip()
        assert service.runtime.whereis("worker") is worker


async def test_a_child_that_cannot_start_is_a_failed_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Config(listen=(Address(*taken.getsockname()),), data_dir=tmp_path)
        runtime = Runtime()
        spec = SupervisorSpec("one_for_one", 3, 60.0, (child_spec(place),))
        supervisor = runtime.spawn(Supervisor, spec)

        reason = await asyncio.wait_for(runtime.join(supervisor), SOON_S)
        await runtime.shutdown()

    assert "port in use" in str(reason)


async def test_a_child_can_be_stopped_and_is_not_started_again(folder: Path | None) -> None:
    async with embedded(folder, restart="transient") as service:
        await service.child()
        answer = await service.runtime.call(service.supervisor, TerminateChild("broker"), SOON_S)

        assert answer == "ok"
        await assert_nobody_listens(service.config.listen[0].port)


# Definitions.


async def test_definitions_are_there_after_a_restart(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        admin = NodeAdmin(broker)
        await admin.vhosts.add_vhost("v")
        await admin.users.add_user("hare", "form")
        await admin.users.set_user_tags("hare", ["monitoring"])
        await admin.users.set_permissions("v", "hare", "^h", ".*", "")
        await admin.users.set_permissions("/", "hare", ".*", ".*", ".*")
        await declare(broker)
        before = lasting(await admin.definitions.export_definitions())

    for _ in range(2):
        async with Broker(config(tmp_path)) as broker:
            after = lasting(await NodeAdmin(broker).definitions.export_definitions())
            running = broker.node.vhosts["/"].topology.queues.values()
            assert all(entry.is_running for entry in running)
            connection = await aio_pika.connect(broker.url)
            await connection.close()

        assert after == before
    assert {each["name"] for each in after["queues"]} == {"durable", "lazy"}
    assert {each["name"] for each in after["exchanges"]} == {"one", "two"}
    assert len(after["bindings"]) == 3


def lasting(document: dict[str, Any]) -> dict[str, Any]:
    """Return what must be there after a restart, in an order of its own."""
    found = {
        key: sorted(rows, key=str) if isinstance(rows, list) else rows
        for key, rows in document.items()
    }
    for table in ("queues", "exchanges"):
        found[table] = [row for row in found[table] if row["durable"]]
    names = {row["name"] for table in ("queues", "exchanges") for row in found[table]}
    found["bindings"] = [
        row for row in found["bindings"] if {row["source"], row["destination"]} <= names
    ]
    return found


async def declare(broker: Broker) -> None:
    """Declare what lasts, what does not, and what lasted for a while."""
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        one = await channel.declare_exchange("one", aio_pika.ExchangeType.TOPIC, durable=True)
        two = await channel.declare_exchange(
            "two", aio_pika.ExchangeType.HEADERS, durable=True, internal=True
        )
        passing = await channel.declare_exchange("passing", auto_delete=True)
        kept = await channel.declare_queue("durable", durable=True)
        lazy = await channel.declare_queue(
            "lazy", durable=True, arguments={"x-queue-mode": "lazy", "x-message-ttl": 60000}
        )
        transient = await channel.declare_queue("transient", auto_delete=True)
        await channel.declare_queue("exclusive", exclusive=True)
        await kept.bind(one, "a.*")
        await kept.bind(one, "gone")
        await lazy.bind(two, arguments={"x-match": "any", "k": 1})
        await two.bind(one, "#")
        await transient.bind(one, "t")
        await kept.bind(passing, "p")
        await kept.unbind(one, "gone")
        deleted = await channel.declare_queue("deleted", durable=True)
        await deleted.delete()
        removed = await channel.declare_exchange("removed", durable=True)
        await removed.delete()


@pytest.mark.parametrize(
    "orphan",
    [
        BindingRow("/", "amq.direct", "queue", "missing", b"k", {}),
        BindingRow("/", "missing", "queue", "missing", b"k", {}),
        BindingRow("missing", "amq.direct", "exchange", "amq.fanout", b"k", {}),
    ],
    ids=["no destination", "no source", "no vhost"],
)
async def test_a_stored_binding_without_its_ends_is_skipped_and_told(
    tmp_path: Path, orphan: Row, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(config(tmp_path)):
        """Make the first rows."""
    store = MetadataStore(tmp_path / "metadata", lambda run: run())
    store.write([orphan], [], lambda error: None)
    store.close()

    async with Broker(config(tmp_path)) as broker:
        assert broker.node.vhosts["/"].topology.bindings() == []

    assert "binding skipped" in caplog.text


async def test_an_empty_vhost_row_is_a_running_vhost(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)):
        """Make the first rows."""
    store = MetadataStore(tmp_path / "metadata", lambda run: run())
    store.write([VhostRow("v")], [], lambda error: None)
    store.close()

    async with Broker(config(tmp_path)) as broker:
        assert all(vhost.state.now in UP for vhost in broker.node.vhosts.values())
        assert set(broker.node.vhosts) == {"/", "v"}


# Names, and the modules that they load.


def test_the_names_of_the_package_are_those_of_its_modules() -> None:
    from leveret.server import broker as broker_module
    from leveret.server.config import config as config_module

    assert leveret.server.Broker is broker_module.Broker
    assert leveret.server.child_spec is broker_module.child_spec
    assert leveret.server.Config is config_module.Config
    with pytest.raises(AttributeError, match="no attribute 'Bröker'"):
        getattr(leveret.server, "Bröker")  # noqa: B009


@pytest.mark.parametrize(
    ("statement", "expected"),
    [("import leveret.server", False), ("from leveret.server import Broker", True)],
)
def test_importing_loads_nothing_that_is_not_needed(
    tmp_path: Path, statement: str, expected: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys\n{statement}\nprint(*sys.modules)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(done.stdout.split())

    assert ("leveret.broker.connection.reader" in modules) is expected
    heavy = {"aiohttp", "pyspark", "uvloop", "rich", "pika", "numpy", "unittest", "setuptools"}
    assert not heavy & modules
    assert not {name for name in modules if name.startswith("multiprocessing.")}
    later = {"leveret.server.control", "leveret.management.node_admin", "leveret.server.cli.main"}
    assert not (later | {"leveret.testing", "leveret.server.perf"}) & modules


# Other places to run.


def test_a_loop_in_another_thread_serves_blocking_clients_of_this_one() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    broker = Broker(config(None))
    asyncio.run_coroutine_threadsafe(broker.start(), loop).result(SOON_S)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"hello")
        got = channel.basic_get("q", auto_ack=True)[2]
    asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(SOON_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(SOON_S)
    loop.close()

    assert got == b"hello"


DEVELOPING = """
import asyncio
from leveret.server import Address, Broker, Config

async def main():
    for folder in ("data", None):
        config = Config(listen=(Address("127.0.0.1", 0),), data_dir=folder)
        for _ in range(2):
            async with Broker(config) as broker:
                reader, writer = await asyncio.open_connection(*broker.addresses[0])
                writer.write(b"AMQP\\0\\0\\x09\\x01")
                assert await reader.readexactly(4) == b"\\x01\\0\\0\\0"
            writer.close()
            await writer.wait_closed()

asyncio.run(main())
"""


def test_pythons_development_mode_finds_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-X", "dev", "-W", "error", "-c", DEVELOPING],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = [line for line in done.stderr.splitlines() if "Executing" not in line]  # slow machine

    assert (done.returncode, said) == (0, [])


UVLOOP = """
import asyncio, uvloop
import aio_pika
from leveret.server import Address, Broker, Config

async def main():
    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir="data")) as broker:
        connection = await aio_pika.connect(broker.url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
            print((await queue.get()).body)

uvloop.run(main())
"""


@pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")
def test_it_runs_on_uvloop(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", UVLOOP],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == ("b'hello'\n", "")


@pytest.mark.asyncio
async def test_a_directory_that_a_cluster_refuses_may_be_given_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise ConfigError("node is another one: give this one a name of its own")

    monkeypatch.setattr(ClusterMember, "join", refuse)
    for node in ("a", "b"):
        etcd = ("http://127.0.0.1:1",)
        member = {"cluster": "c", "cluster_etcd": etcd, "cluster_listen": "127.0.0.1:0"}
        broker = Broker(config(tmp_path, cluster_node=node, **member))
        with pytest.raises(ConfigError, match="a name of its own"):
            await broker.start()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("latency", "policy"), [({}, BALANCED), ({"latency": "low"}, LOW)], ids=["balanced", "low"]
)
async def test_latency_says_what_waits(
    tmp_path: Path, latency: dict[str, str], policy: Batching
) -> None:
    async with Broker(config(tmp_path / "data", **latency)) as broker:
        await round_trip(broker)
        busy_wait = broker.runtime.turns.scheduler._busy_wait
        store = broker.node.vhosts["/"].store.msg_store

        assert store is not None
        assert (busy_wait._policy if busy_wait is not None else None) == policy.busy_wait
        assert store._flusher._window == policy.flushes
        assert broker.node.connections.turns.batching is policy
        status = await NodeAdmin(broker).status()
        assert status["latency"] == latency.get("latency", "balanced")
