"""Plug-ins are found by their entry points, loaded once, and refused by name.

Tests: routing/exchange_type.py, routing/unusable.py
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from leveret.broker.channel.interceptors import Interceptor
from leveret.core.errors import ConfigError
from leveret.routing import exchange
from leveret.routing.fanout import FanoutMatcher
from leveret.server import Address, Broker, Config, plugins

LOADED: list[str] = []


class Mine(FanoutMatcher):
    __slots__ = ()


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, plugins.EXCHANGE_TYPES)


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    found: list[EntryPoint] = []

    def entry_points(group: str) -> list[EntryPoint]:
        LOADED.append(group)
        return [each for each in found if each.group == group]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.setattr(exchange, "_TYPES", dict(exchange._TYPES))
    plugins.load_exchange_types.cache_clear()
    LOADED.clear()
    yield found
    plugins.load_exchange_types.cache_clear()


async def test_the_first_broker_of_a_process_loads_them(
    entries: list[EntryPoint], tmp_path: Path
) -> None:
    entries.append(entry("x-mine", f"{__name__}:Mine"))

    for _ in range(2):
        async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=None)):
            assert exchange.is_type("x-mine")

    assert LOADED == [plugins.EXCHANGE_TYPES]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x-gone", "no_such_module:Type", "plug-in 'x-gone' of leveret.exchange_types .*cannot be loaded"),
        ("x-gone", f"{__name__}:NoSuchType", "cannot be loaded: .*NoSuchType"),
        ("direct", f"{__name__}:Mine", "exchange type 'direct' is registered already"),
    ],
)  # fmt: skip
async def test_a_plug_in_that_cannot_be_used_is_an_error(
    entries: list[EntryPoint], name: str, value: str, text: str
) -> None:
    entries.append(entry(name, value))

    with pytest.raises(ConfigError, match=text):
        await Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=None)).start()


class Quiet(Interceptor):
    pass


class Broken(Interceptor):
    def __init__(self) -> None:
        raise OSError("no licence")


def test_no_interceptors_are_none() -> None:
    assert plugins.load_interceptors(()) is None


def test_interceptors_are_made_in_the_order_of_the_setting(entries: list[EntryPoint]) -> None:
    here = f"{__name__}:Quiet"
    entries += [EntryPoint(name, here, plugins.INTERCEPTORS) for name in ("b", "a", "c")]

    found = plugins.load_interceptors(["c", "a"])

    assert found is not None
    assert [type(each) for each in found._chain] == [Quiet, Quiet]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gone", "'gone' of leveret.interceptors is not installed; installed: broken"),
        ("broken", "'broken' of leveret.interceptors failed: no licence"),
    ],
)
def test_an_interceptor_that_cannot_be_made_is_an_error(
    entries: list[EntryPoint], name: str, text: str
) -> None:
    entries.append(EntryPoint("broken", f"{__name__}:Broken", plugins.INTERCEPTORS))

    with pytest.raises(ConfigError, match=text):
        plugins.load_interceptors([name])
