"""What the tables keep of a queue."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.msg_store.format.rows import QueueTerms


@dataclass(slots=True)
class Terms:
    """The terms of a queue as they change; see ``index_rows.QueueTerms``."""

    next_seq: int = 0
    next_deliver: int = 0
    messages: int = 0
    size_bytes: int = 0
    is_clean: bool = False

    def frozen(self) -> QueueTerms:
        """Return what they are now."""
        return QueueTerms(
            self.next_seq, self.next_deliver, self.messages, self.size_bytes, self.is_clean
        )
