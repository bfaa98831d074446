"""The machine of store and collector with an archived queue, on virtual time, and a reader that follows the watermark."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from leveret.msg_store.archive.archive import Retention
from leveret.msg_store.checkpoint.checkpoint import CheckpointLimits
from leveret.msg_store.gc.choose import ChoiceLimits
from rigs.store.archive_rig import ArchiveRig
