"""A broker without sockets for the tests of its parts."""

from __future__ import annotations

import pytest

from broker_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()
