"""The kernels, for tests that hold for both; the streams to feed them are in ``amqp_streams``."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture(params=["_kernel_py", "_kernel_c", "frame_scanner"])
def scanning(request: pytest.FixtureRequest) -> Any:
    """A class that obeys the contract of Scanner: both kernels', and the one without fast paths."""
    module = _module(request.param)
    return module.FrameScanner if request.param == "frame_scanner" else module.Scanner


@pytest.fixture(params=["_kernel_py", "_kernel_c"])
def kernel(request: pytest.FixtureRequest) -> Any:
    """Both kernels, as modules."""
    return _module(request.param)


def _module(name: str) -> Any:
    if name == "_kernel_c":
        return pytest.importorskip("leveret.amqp._kernel_c")
    return importlib.import_module(f"leveret.amqp.{name}")
