"""A broker without sockets for the tests of its parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigs.broker_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture(autouse=True)
def _nothing_crashes(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Let an actor's crash fail the tests of whole brokers: none of them means one to happen."""
    yield
    if getattr(request.module, "Rig", None) is Rig:
        said = [record.getMessage() for record in caplog.get_records("call")]
        assert not [line for line in said if line.startswith("actor crashed")]
