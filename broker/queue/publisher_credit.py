"""What a queue owes its publishers: credit and confirms.

Credit goes to whoever published, counted per channel by ``actors.credit``. A channel that has gone
is found out when the table has doubled since it was last looked through, so that publishing costs
no monitor; the table stays within twice the number of live publishers.

A confirm is due when the backing queue calls the message safe: mostly at once, and then nothing is
kept here. What is not safe yet is noted as intervals of ``seq``, to be settled in whatever pieces
and order the backing queue confirms.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.actors.credit import CreditReceiver, Grant

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref

Sender: TypeAlias = "tuple[Ref, int, int, int]"  # channel, count, size_bytes, first_seqno
Ranges: TypeAlias = "dict[Ref, list[tuple[int, int]]]"  # channel -> (first_seqno, count)
Interval: TypeAlias = "tuple[int, int, Ref, int]"  # seq, count, channel, seqno

_PRUNE_AT: Final = 64
_seq_of: Final = itemgetter(0)


class PublisherCredit:
    """The publishers of one queue.

    Attributes:
        owed: confirms outstanding, sorted by ``seq``.
    """

    __slots__ = ("_credit", "_prune_at", "owed")

    def __init__(self) -> None:
        self._credit: dict[Ref, CreditReceiver] = {}
        self._prune_at = _PRUNE_AT
        self.owed: list[Interval] | None = None

    # Credit.

    def received(self, channel: Ref, count: int, size_bytes: int) -> Grant | None:
        """Take note of what a channel published; return what to grant it, if it is time."""
        receiver = self._credit.get(channel)
        if receiver is None:
            if len(self._credit) >= self._prune_at:
                self._prune()
            receiver = self._credit[channel] = CreditReceiver()
        return receiver.received(count, size_bytes)

    def _prune(self) -> None:
        self._credit = {ref: credit for ref, credit in self._credit.items() if ref.is_alive}
        self._prune_at = max(_PRUNE_AT, 2 * len(self._credit))

    # Confirms.

    def take_confirms(self, senders: list[Sender], unsafe_from: int, base: int) -> Ranges:
        """Sort out the confirms of a batch.

        Args:
            senders: who published how many of it.
            unsafe_from: the position of the first message that is not safe yet.
            base: the ``seq`` of position 0, given or taken for granted.

        Returns:
            What can be confirmed now; the rest is owed.
        """
        ranges: Ranges = {}
        position = 0
        for channel, count, _, seqno in senders:
            if seqno:
                safe = max(0, min(count, unsafe_from - position))
                if safe:
                    _extend(ranges, channel, seqno, safe)
                if safe < count:
                    self._owe((base + position + safe, count - safe, channel, seqno + safe))
            position += count
        return ranges

    def _owe(self, interval: Interval) -> None:
        if self.owed is None:
            self.owed = []
        self.owed.append(interval)

    def settle(self, confirmed: list[tuple[int, int]]) -> Ranges:
        """Take off what the backing queue confirms, as ``(first_seq, count)``; return whose it is."""
        ranges: Ranges = {}
        for first, count in confirmed:
            self._settle(first, first + count, ranges)
        self.owed = self.owed or None
        return ranges

    def _settle(self, first: int, end: int, ranges: Ranges) -> None:
        owed = self.owed
        if not owed:
            return
        low = max(0, bisect_right(owed, first, key=_seq_of) - 1)
        high = bisect_left(owed, end, key=_seq_of)
        left: list[Interval] = []
        for seq, count, channel, seqno in owed[low:high]:
            start, stop = max(seq, first), min(seq + count, end)
            if start >= stop:
                left.append((seq, count, channel, seqno))
                continue
            _extend(ranges, channel, seqno + start - seq, stop - start)
            if seq < start:
                left.append((seq, start - seq, channel, seqno))
            if stop < seq + count:
                left.append((stop, seq + count - stop, channel, seqno + stop - seq))
        owed[low:high] = left

    def creditors(self) -> list[Ref]:
        """Return the channels that are owed confirms, each once."""
        return list(dict.fromkeys(channel for _, _, channel, _ in self.owed or ()))


def _extend(ranges: Ranges, channel: Ref, seqno: int, count: int) -> None:
    """Add a range, joined with the one before when it goes on from there."""
    own = ranges.get(channel)
    if own is None:
        ranges[channel] = [(seqno, count)]
        return
    first, length = own[-1]
    if first + length == seqno:
        own[-1] = (first, length + count)
    else:
        own.append((seqno, count))
