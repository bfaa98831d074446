"""Rows of records that no index vouches for: a record is a row for each queue of its route."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from leveret.msg_store.format.record import HEADER_BYTES, PERSISTENT
from leveret.spark.scan.gather import Numbers
from leveret.spark.scan.locators import NO_SEQ
from leveret.spark.scan.properties import Heads
from leveret.spark.scan.record_meta import Metas, read_metas
from leveret.spark.scan.segment import Segment

Columns: TypeAlias = dict[str, Numbers]

_QUEUE_NO: Final = (1 << 32) - 1
_HIGHEST_SHIFT: Final = 32


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """Rows of some records.

    Attributes:
        record: of each row, its place among the records.
        queue_nos: of each row, the queue's number in the route.
        highest: of each row, the highest priority of its queue.
        metas: of the records.
    """

    record: Numbers
    queue_nos: Numbers
    highest: Numbers
    metas: Metas

    def where(self, wanted: Any) -> RoutedRows:
        """Return the rows for which ``wanted``, a mask, is true."""
        return replace(
            self,
            record=self.record[wanted],
            queue_nos=self.queue_nos[wanted],
            highest=self.highest[wanted],
        )

    def row_nos(self) -> Numbers:
        """Return the number under which the index would have each row: a queue with priorities has one for each."""
        priorities = Heads(self.metas.rows, self.metas.head).priorities()
        found: Numbers = self.queue_nos + np.minimum(priorities[self.record], self.highest)
        return found

    def columns(self, offsets: Numbers, lengths: Numbers, headers: Any, state: int) -> Columns:
        """Return the rows as the columns of a locator (``scan.locators``).

        Args:
            offsets: of the records.
            lengths: of the records.
            headers: of the records.
            state: of all rows.
        """
        record, count = self.record, len(self.record)
        return {
            "offset": offsets[record].astype(np.uint32),
            "length": lengths[record].astype(np.uint32),
            "queue_no": self.row_nos().astype(np.uint32),
            "seq": np.full(count, NO_SEQ, np.int64),
            "time_ms": headers["ts_ms"][record].astype(np.int64),
            "expiry_ms": np.zeros(count, np.int64),
            "msg_no": headers["msg_no"][record],
            "body_size": headers["body_len"][record],
            "refcount": np.zeros(count, np.uint32),
            "flags": (headers["flags"][record] & PERSISTENT).astype(np.uint8),
            "state": np.full(count, state, np.uint8),
        }


def routed_rows(segment: Segment, offsets: Numbers, headers: Any) -> RoutedRows:
    """Return the rows of records; those whose meta is damaged (``metas.rows.bad``) have none."""
    lengths = headers["meta_len"].astype(np.int64)
    metas = read_metas(segment.buffer, offsets + HEADER_BYTES, lengths, True)
    record = np.repeat(np.arange(len(offsets)), np.diff(metas.number_offsets))
    numbers = metas.numbers
    rows = RoutedRows(record, numbers & _QUEUE_NO, numbers >> _HIGHEST_SHIFT, metas)
    return rows.where(~metas.rows.bad[record])
