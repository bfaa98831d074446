"""Dicts that are divided into segments as soon as they have a few items."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from leveret.core import segmented_dict


@contextmanager
def segmented_from(count: int, *users: ModuleType) -> Iterator[None]:
    """Let ``users`` of ``SegmentedDict`` change to it when there are more than ``count`` items."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (segmented_dict, *users):
            patch.setattr(module, "SEGMENT_KEYS", count)
        patch.setattr(segmented_dict, "SEGMENT_BITS", 2)
        yield
