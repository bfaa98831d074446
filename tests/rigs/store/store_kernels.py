"""The two kernels of the store, for tests that are made with both."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

NAMES = ["_kernel_py", "_kernel_c"]


def kernel_of(name: str) -> Any:
    """Import one; skip the test where the compiled one is not there."""
    if name == "_kernel_c":
        return pytest.importorskip("leveret.msg_store.format._kernel_c")
    return importlib.import_module(f"leveret.msg_store.format.{name}")
