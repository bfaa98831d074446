"""A broker whose actors can be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.rig import Chaos, chaos_on
from leveret.core.system.files import OsCalls


@pytest.fixture
async def chaos(tmp_path: Path) -> AsyncIterator[Chaos]:
    async with chaos_on(OsCalls(), tmp_path) as rig:
        yield rig
