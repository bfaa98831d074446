"""An authority for the tests of TLS, one that nobody trusts, and the broker's certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.server import Address, Config
from rigs.certificates import Authority, Issued

TLS = Address("127.0.0.1", 0, "amqps")


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), "Foreign")


@pytest.fixture(scope="session")
def served(authority: Authority) -> Issued:
    """The broker's certificate."""
    return authority.issue("localhost")


@pytest.fixture
def tls_config(served: Issued) -> Callable[..., Config]:
    """Make settings with a TLS listener, everything in memory."""

    def make(**more: Any) -> Config:
        given: dict[str, Any] = {"listen": (TLS,), "data_dir": None, "loopback_users": ()}
        given |= {"tls_cert_file": served.cert, "tls_key_file": served.key}
        return Config(**(given | more))

    return make
