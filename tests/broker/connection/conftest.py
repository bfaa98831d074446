from __future__ import annotations

import pytest

from rigs.broker_rig import Wire


@pytest.fixture
def wire() -> Wire:
    return Wire()
