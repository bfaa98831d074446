from __future__ import annotations

from pathlib import Path

import pytest

from rigs.store.offline.offline_rig import OfflineRig


@pytest.fixture
def rig(tmp_path: Path) -> OfflineRig:
    return OfflineRig(tmp_path / "store")
