"""Options, profiles and the broker that the tests with real sockets talk to.

``--rabbitmq HOST:PORT`` runs those tests against that RabbitMQ instead of a Leveret of their own: the
answers the tests expect are RabbitMQ's, so both must pass. ``--cluster N`` runs them against a cluster of N nodes,
whose balancer sends every connection to another node. ``LEVERET_KERNEL`` chooses the codec kernel
of the Leveret that is started. ``--seed`` repeats the random choices of an earlier run.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from leveret.actors.runtime.runtime import Runtime
from leveret.core.compiled_path import compiled_modules, form_of_path
from leveret.core.log.loggers import FLOODS
from leveret.testing.virtual_clock import VirtualClock
from rigs.cluster.balanced_cluster import balanced
from rigs.cluster.etcd import Etcd
from rigs.nodes import (
    BrokerUnderTest,
    rabbitmq,
    start_leveret,
    start_leveret_with_tls,
    stop_leveret,
)

pytest_plugins = ["rigs.workers"]

CI = bool(os.environ.get("CI"))

settings.register_profile("leveret", deadline=None, derandomize=CI, print_blob=True)
settings.register_profile(
    "first", settings.get_profile("leveret"), phases=[Phase.explicit, Phase.generate]
)  # ends with the first failure as it was found, for runs that only ask whether there is one
settings.load_profile("leveret")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests marked slow")
    parser.addoption(
        "--rabbitmq", metavar="HOST:PORT", help="talk to this RabbitMQ, not to Leveret"
    )
    parser.addoption(
        "--cluster",
        type=int,
        metavar="N",
        help="talk to N nodes of Leveret, every connection to another",
    )
    parser.addoption("--tls", action="store_true", help="the raw client talks TLS to Leveret")
    parser.addoption("--seed", type=int, help="seed of the tests that choose at random")


def pytest_configure(config: pytest.Config) -> None:
    chosen = [each for each in ("--rabbitmq", "--cluster", "--tls") if config.getoption(each)]
    if len(chosen) > 1:
        raise pytest.UsageError(f"{' and '.join(chosen)}: choose one broker")
    if config.getoption("--seed") is None:
        config.option.seed = 1 if CI else random.SystemRandom().randrange(1 << 32)
    if compiled_modules():
        skip_what_replaces_parts(compiled_modules())


def skip_what_replaces_parts(modules: frozenset[str]) -> None:
    """Skip tests that replace a part of a compiled module: its code would go on with what it was compiled from."""
    setattr_ = pytest.MonkeyPatch.setattr

    def setattr_or_skip(patch: pytest.MonkeyPatch, target: Any, *rest: Any, **options: Any) -> None:
        name = target.rpartition(".")[0] if isinstance(target, str) else target
        if isinstance(name, ModuleType):
            name = name.__name__
        if getattr(name, "__module__", name) in modules:
            pytest.skip("replaces a part of a compiled module")
        setattr_(patch, target, *rest, **options)

    pytest.MonkeyPatch.setattr = setattr_or_skip  # type: ignore[method-assign]


def pytest_report_header(config: pytest.Config) -> list[str]:
    nodes = config.getoption("--cluster")
    own = f"{nodes} nodes of Leveret behind a balancer" if nodes else "a Leveret of our own"
    peer = config.getoption("--rabbitmq") or own
    kernel = os.environ.get("LEVERET_KERNEL", "as built")
    return [
        f"broker: {peer}, kernel: {kernel}, message's path: {form_of_path()}",
        f"repeat with: --seed {config.option.seed}",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if compiled_modules():
        skip = pytest.mark.skip(reason="sources: needs the modules that are compiled as they are")
        for item in items:
            if "sources" in item.keywords:
                item.add_marker(skip)
    if not config.getoption("--slow"):
        skip = pytest.mark.skip(reason="slow: runs with --slow")
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Freeze the many objects that exist before the first test, so that the garbage collector skips them.

    Tests of what stays alive collect and count often, and ask for differences only.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def _others_are_frozen() -> None:
    """Freeze what other files have left, for tests that collect again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_end_of_long_tests(request: pytest.FixtureRequest) -> None:
    """Let slow tests run longer than ``faulthandler_timeout``, which ends the process of a test that hangs."""
    if "slow" in request.keywords:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run; printed with the output of a test that fails."""
    value: int = request.config.option.seed
    sys.stdout.write(f"repeat with: --seed {value}\n")
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def runtime(clock: VirtualClock) -> Runtime:
    """A runtime without a loop, driven by hand."""
    return Runtime(clock=clock)


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerUnderTest]:
    """One broker for the whole run; tests keep apart by names of their own (``name``)."""
    if address := request.config.getoption("--rabbitmq"):
        yield rabbitmq(address)
        return
    if count := request.config.getoption("--cluster"):
        with (
            Etcd(tmp_path_factory.mktemp("etcd")) as etcd,
            balanced(
                tmp_path_factory.mktemp("cluster"), etcd, "tests", count, is_patient=True
            ) as cluster,
        ):
            yield cluster
        return
    start = start_leveret_with_tls if request.config.getoption("--tls") else start_leveret
    running = start(tmp_path_factory.mktemp("leveret"))
    yield running
    stop_leveret(running)


@pytest.fixture
def own_leveret(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., BrokerUnderTest]]:
    """Start Leveret nodes of the test's own; those still running are stopped after it."""
    if request.config.getoption("--rabbitmq"):
        pytest.skip("needs a node of its own")
    started: list[BrokerUnderTest] = []

    def start(*arguments: str, **environment: str) -> BrokerUnderTest:
        folder = tmp_path / f"node{len(started)}"
        folder.mkdir()
        started.append(start_leveret(folder, *arguments, **environment))
        return started[-1]

    yield start
    for node in started:
        stop_leveret(node)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One etcd for the whole run, never stopped; tests keep apart by prefixes of their own (``name``)."""
    with Etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _lines_of_other_tests_do_not_count() -> Iterator[None]:
    """Begin a new window of the log's flood control, so that each test sees all its lines."""
    yield
    FLOODS.flush()
