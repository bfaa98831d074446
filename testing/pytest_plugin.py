"""The pytest plugin: a real broker in the process of the tests, with fixtures for its clock, faults and messages.

pytest finds the plugin by its entry point, so ``pip install leveret`` is sufficient. The broker is imported only
when a test uses one. Fixtures: ``amqp_broker``, ``amqp_url``, ``virtual_clock``, ``chaos``,
``expect_published``; ``docs/testing.md`` describes them and the settings.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import random
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from leveret.testing.broker import BrokerThread
    from leveret.testing.chaos import Chaos
    from leveret.testing.vhost import FreshVhost
    from leveret.testing.virtual_time import VirtualTime

MARKER: Final = "amqp_broker"
_CHAOS: Final = pytest.StashKey["Chaos"]()
_SEED: Final = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings."""
    group = parser.getgroup("leveret")
    group.addoption(
        "--chaos-seed", type=int, metavar="N", help="repeat what the fixture chaos left to chance"
    )
    parser.addini("leveret_kernel", "kernels of the broker: c or py", default="")
    parser.addini("leveret_durable", "keep messages on disk", type="bool", default=False)
    parser.addini("leveret_data_dir", "where; a temporary folder by default", default="")
    parser.addini("leveret_config", "FIELD = VALUE of Config, one per line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed and the kernel; a kernel that is already loaded cannot be changed."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(durable=..., data_dir=..., **config): settings of the broker of this test",
    )
    given = config.getoption("--chaos-seed")
    config.stash[_SEED] = random.SystemRandom().randrange(1 << 32) if given is None else given
    kernel = config.getini("leveret_kernel")
    if not kernel:
        return
    if kernel not in {"c", "py"}:
        raise pytest.UsageError(f'leveret_kernel is "{kernel}"; allowed: c, py')
    loaded = {"leveret.amqp.kernel", "leveret.msg_store.format.kernel"} & sys.modules.keys()
    if loaded and os.environ.get("LEVERET_KERNEL") != kernel:
        raise pytest.UsageError("leveret_kernel: the broker's kernel has been loaded before pytest")
    os.environ["LEVERET_KERNEL"] = kernel


class Brokers:
    """The brokers of a run: one for each combination of settings, started at the first use."""

    def __init__(self, config: pytest.Config, folders: pytest.TempPathFactory) -> None:
        self._config = config
        self._folders = folders
        self._running: dict[str, BrokerThread] = {}

    def get(self, given: dict[str, Any]) -> BrokerThread:
        """Return the broker with these settings; a broker that has ended is replaced."""
        key = repr(sorted(given.items()))
        broker = self._running.get(key)
        if broker is not None and broker.is_running:
            return broker
        if broker is not None:
            broker.stop()
        broker = self._running[key] = self._make(dict(given))
        broker.start()
        return broker

    def discard(self, broker: BrokerThread) -> None:
        """Stop a broker that no other test may use."""
        self._running = {key: each for key, each in self._running.items() if each is not broker}
        broker.stop()

    def stop(self) -> None:
        for broker in list(self._running.values()):
            self.discard(broker)

    def _make(self, given: dict[str, Any]) -> BrokerThread:
        from leveret.testing.broker import BrokerThread, memory_config  # noqa: PLC0415

        settings = dict(map(_setting, self._config.getini("leveret_config")))
        _check_names("leveret_config", settings)
        folder = given.pop("data_dir", None) or self._config.getini("leveret_data_dir")
        durable = given.pop("durable", None)
        if durable is None:
            durable = bool(folder) or self._config.getini("leveret_durable")
        if durable:
            settings["data_dir"] = self._data_dir(folder)
        return BrokerThread(memory_config(**(settings | given)))

    def _data_dir(self, folder: Any) -> Path:
        """Return a folder that no other worker of pytest-xdist uses."""
        if not folder:
            return self._folders.mktemp("leveret")
        place: Path = self._config.rootpath / folder
        return place / os.environ.get("PYTEST_XDIST_WORKER", "")


def _check_names(place: str, given: dict[str, Any], *also: str) -> None:
    """Refuse a setting that is not a field of ``Config``, and suggest the most similar one."""
    from leveret.server.config.config import Config  # noqa: PLC0415 - loads the broker

    known = [*also, *(field.name for field in dataclasses.fields(Config))]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "the settings are the fields of Config"
            raise pytest.UsageError(f"{place}: unknown setting {name}; {hint}")


def _setting(line: str) -> tuple[str, Any]:
    """Parse ``FIELD = VALUE``; numbers, true and false are converted."""
    name, is_given, text = (part.strip() for part in line.partition("="))
    if not is_given:
        raise pytest.UsageError(f'leveret_config: "{line}" is not FIELD = VALUE')
    if text in {"true", "false"}:
        return name, text == "true"
    for kind in (int, float):
        try:
            return name, kind(text)
        except ValueError:
            continue
    return name, text


# Fixtures.


@pytest.fixture(scope="session")
def amqp_brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    """The brokers of the run; ``amqp_broker`` takes one of them."""
    brokers = Brokers(request.config, tmp_path_factory)
    yield brokers
    brokers.stop()


@pytest.fixture
def amqp_broker(request: pytest.FixtureRequest, amqp_brokers: Brokers) -> Iterator[FreshVhost]:
    """A real broker with a vhost of the test's own; ``leveret.testing.vhost.FreshVhost``."""
    from leveret.core.errors import ConfigError  # noqa: PLC0415
    from leveret.testing.vhost import FreshVhost  # noqa: PLC0415 - loads the broker

    given: dict[str, Any] = {}
    for marker in request.node.iter_markers(MARKER):
        if marker.args:
            found = f"marker {MARKER} takes NAME=VALUE, not {marker.args[0]!r}"
            pytest.fail(found, pytrace=False)
        given = marker.kwargs | given  # the nearest marker counts
    try:
        _check_names(f"marker {MARKER}", given, "durable")
        broker = amqp_brokers.get(given)
    except (ConfigError, pytest.UsageError) as error:
        pytest.fail(str(error), pytrace=False)
    vhost = FreshVhost(broker)
    yield vhost
    vhost.delete()


@pytest.fixture
def amqp_url(amqp_broker: FreshVhost) -> str:
    """An AMQP URL of the test's own vhost."""
    return amqp_broker.url


@pytest.fixture
def virtual_clock(amqp_broker: FreshVhost) -> Iterator[VirtualTime]:
    """The broker's time: it stands still until ``advance``."""
    from leveret.testing.virtual_time import VirtualTime  # noqa: PLC0415 - loads the broker

    with VirtualTime(amqp_broker.thread) as time:
        yield time


@pytest.fixture
def chaos(
    request: pytest.FixtureRequest, amqp_broker: FreshVhost, amqp_brokers: Brokers
) -> Iterator[Chaos]:
    """Faults for the broker; the broker is not used by other tests afterwards."""
    from leveret.testing.chaos import Chaos  # noqa: PLC0415 - loads the broker

    seed = request.config.stash[_SEED]
    thread = amqp_broker.thread
    found = request.node.stash[_CHAOS] = Chaos(
        thread.broker, f"{seed} {request.node.nodeid}", thread.run
    )
    yield found
    amqp_brokers.discard(thread)


@pytest.fixture
def expect_published(amqp_broker: FreshVhost) -> Any:
    """A block that must publish certain messages; see ``FreshVhost.expect_published``."""
    return amqp_broker.expect_published


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the injected faults and the way to repeat them to the report of a failure."""
    report = yield
    chaos = item.stash.get(_CHAOS, None)
    if chaos is not None and report.failed:
        repeat = f"repeat with: --chaos-seed {item.config.stash[_SEED]}"
        report.sections.append(("chaos", f"{chaos.report()}\n{repeat}"))
    return report
