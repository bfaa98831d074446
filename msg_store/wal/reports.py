"""What group commit tells its driver: when to flush, and what has become certain."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from leveret.msg_store.format.errors import StoreFailed
from leveret.msg_store.wal.pending import SeqRun

LINGER_S: Final = 0.2  # for work that nobody waits for
FULL_RETRY_S: Final = 1.0


class Due(enum.Enum):
    """When the next flush should start."""

    NEVER = "nothing to do, or one is on its way"
    LATER = "within LINGER_S, unless somebody waits for it before"
    NOW = "somebody waits"
    WHEN_RESUMED = "the disk is full; within FULL_RETRY_S"


@dataclass(slots=True)
class Report:
    """What has become certain, as runs ``(queue_no, first_seq, count)``.

    Attributes:
        safe: on disk, or acked before they got there.
        nacked: could not be written now; they stay pending, are named again at each try that
            fails, and may be safe later.
        error: the store has failed; nothing that was not reported safe can be relied on.
    """

    safe: list[SeqRun] = field(default_factory=list)
    nacked: list[SeqRun] = field(default_factory=list)
    error: StoreFailed | None = None
