"""A queue's debts to its publishers: credit and confirms.

Credit goes to the channels that publish, counted per channel by ``actors.credit``. The account of a
channel that has not published for ``IDLE_S`` is closed: the channel is granted the rest, and both
forget it. An account costs both ends some 500 bytes, so a queue that has many closes them after ``CROWDED_S``:
a client with hundreds of channels could publish once from each of them to each of thousands of queues. Accounts
of channels that have ended are dropped at the same time, and when the table has doubled, so that publishing costs
no monitor.

A confirm is due when the message is safe: mostly at once, and then nothing is noted here. Messages that
are not safe yet are noted as intervals of ``seq``, which the backing queue confirms in any pieces and
order.

Queues that dead-letter publish too (``Publish.by_queue``). They have no account. When the disk takes nothing for now
they are told nothing: the queue keeps the message, and the confirm comes later.

The queue may withhold credit while it is above its length limit and cannot dead-letter as fast as it is filled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.actors.credit import CreditReceiver, Grant
from leveret.broker import mail

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.scheduler import Turns
    from leveret.actors.runtime.timers import Timer

Ranges: TypeAlias = "dict[Ref, list[tuple[int, int]]]"  # channel -> (first_seqno, count)
Interval: TypeAlias = "tuple[int, int, Ref, int]"  # seq, count, channel, seqno

# Between two checks of the accounts; one that was not used in between is closed.
IDLE_S: Final = 10.0
CROWDED_S: Final = 1.0
CROWD: Final = 16  # accounts
CHECKED_PER_TURN: Final = 200  # accounts per turn, of which it may close all
_PRUNE_AT: Final = 64
_seq_of: Final = itemgetter(0)


class Publishers:
    """The publishers of one queue, which is the sender of the mails to them.

    Args:
        start_timer: has ``close_idle`` called after so many seconds.
    """

    __slots__ = ("_credit", "_latest", "_latest_credit", "_prune_at", "_queue", "_queues", "_start_timer", "_timer",
        "_turns", "_unconfirmed", "_withheld")  # fmt: skip

    def __init__(self, turns: Turns, queue: Ref, start_timer: Callable[[float], Timer]) -> None:
        # First what each message needs: compiled, fields lie in memory in this order.
        self._withheld: list[tuple[Ref, int, int]] | None = None  # None: credit is granted
        # The channel that published last, and its credit: mostly the only one, and not looked up.
        self._latest: Ref | None = None
        self._latest_credit: CreditReceiver | None = None
        self._turns = turns
        self._queue = queue
        self._unconfirmed: list[Interval] | None = None  # sorted by seq
        self._queues: set[Ref] | None = None  # those of them that are queues
        self._credit: dict[Ref, CreditReceiver] = {}
        self._prune_at = _PRUNE_AT
        self._start_timer = start_timer
        self._timer: Timer | None = None

    def published(self, publish: mail.Publish, unsafe_from: int, base: int) -> None:
        """Grant credit for a batch, and confirm the messages that are safe.

        From the position ``unsafe_from`` on they are not safe yet; ``base`` is the ``seq`` that position 0
        has, or would have if it was published as well.
        """
        has_confirms = False
        for channel, count, size_bytes, seqno in publish.publishers:
            if publish.by_queue:
                grant = None
            elif channel is self._latest and self._latest_credit is not None:
                grant = self._latest_credit.received(count, size_bytes)
            else:
                grant = self._received(channel, count, size_bytes)
            if grant is not None:
                granted = mail.CreditGrant(self._queue, grant.messages, grant.size_bytes)
                self._turns.send(channel, granted, self._queue)
            has_confirms = has_confirms or seqno > 0
        if not has_confirms:
            return
        if len(publish.publishers) == 1 and unsafe_from >= count:  # the way of most confirms
            self._turns.send_now(channel, mail.Confirm(self._queue, [(seqno, count)]))
        else:
            self._send(self._due(publish, unsafe_from, base))

    def refuse(self, publish: mail.Publish) -> None:
        """Grant credit for a batch that the queue does not take in, and refuse its messages."""
        for channel, count, size_bytes, _ in publish.publishers if not publish.by_queue else ():
            self._grant(channel, count, size_bytes)
        self._send(self._due(publish, len(publish.messages), 0), ok=False)

    def confirm_all(self, publish: mail.Publish) -> None:
        """Confirm a batch to a queue that is deleted, without credit."""
        self._send(self._due(publish, len(publish.messages), 0))

    def confirm(self, runs: list[tuple[int, int]], ok: bool = True) -> None:
        """Confirm, or refuse, messages of which the backing queue gives ``(first_seq, count)``."""
        if not self._unconfirmed:
            return
        ranges: Ranges = {}
        waiting_on = None if ok else self._queues
        for first, count in runs:
            _take(self._unconfirmed, first, first + count, ranges, waiting_on)
        if not self._unconfirmed:
            self._unconfirmed = self._queues = None
        self._send(ranges, ok)

    def _send(self, ranges: Ranges, ok: bool = True) -> None:
        for channel, own in ranges.items():
            self._turns.send_now(channel, mail.Confirm(self._queue, own, ok))

    # Credit.

    def _grant(self, channel: Ref, count: int, size_bytes: int) -> None:
        grant = self._received(channel, count, size_bytes)
        if grant is not None:
            granted = mail.CreditGrant(self._queue, grant.messages, grant.size_bytes)
            self._turns.send_bulk(channel, granted, self._queue)

    def withhold_credit(self) -> None:
        """Grant no credit until ``release_credit``."""
        if self._withheld is None:
            self._withheld = []
            self._latest = self._latest_credit = None

    def release_credit(self) -> None:
        """Grant the credit that was withheld."""
        withheld, self._withheld = self._withheld, None
        for each in withheld or ():
            self._grant(*each)

    def _received(self, channel: Ref, count: int, size_bytes: int) -> Grant | None:
        """Count messages of a channel; return the credit to grant it, if it is time."""
        if self._withheld is not None:
            self._withheld.append((channel, count, size_bytes))
            return None
        receiver = self._credit.get(channel)
        if receiver is None:
            self._make_room()
            receiver = self._credit[channel] = CreditReceiver()
        self._latest, self._latest_credit = channel, receiver
        return receiver.received(count, size_bytes)

    def _make_room(self) -> None:
        """Before an account is opened, time the look at it; drop those of channels that have ended."""
        count = len(self._credit)
        if not count:
            self._arm(IDLE_S)
        elif count == CROWD:
            self._arm(CROWDED_S)
        elif count >= self._prune_at:
            self._credit = {ref: credit for ref, credit in self._credit.items() if ref.is_alive}
            self._prune_at = max(_PRUNE_AT, 2 * len(self._credit))

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._start_timer(delay_s)

    def account_count(self) -> int:
        """Return how many channels have an account."""
        return len(self._credit)

    def close_idle(self) -> bool:
        """Close accounts without use since the last check; return whether the queue owes anybody.

        One call checks ``CHECKED_PER_TURN`` accounts, the next call those behind them. A timer calls it again while
        it returns True, and in such time that each account is checked once in ``IDLE_S``, or ``CROWDED_S``.
        """
        accounts, waiting = self._credit, None
        self._latest = self._latest_credit = None
        checked = list(islice(accounts, CHECKED_PER_TURN))
        for channel in checked:
            receiver = accounts.pop(channel)
            if not channel.is_alive:
                continue
            if receiver.was_idle():
                if waiting is None:
                    waiting = set(self.waiting_channels())
                if channel not in waiting:
                    rest = receiver.grant_rest()
                    last = mail.CreditGrant(self._queue, rest.messages, rest.size_bytes, True)
                    self._turns.send_bulk(channel, last, self._queue)
                    continue
            accounts[channel] = receiver
        count = len(accounts)
        if len(checked) > count:  # a dict keeps the room of keys that were deleted
            self._credit = dict(accounts)
        if not count and not self._unconfirmed and self._withheld is None:
            return False
        period_s = IDLE_S if count < CROWD else CROWDED_S
        self._arm(period_s * CHECKED_PER_TURN / max(CHECKED_PER_TURN, count))
        return True

    # Confirms.

    def _due(self, publish: mail.Publish, unsafe_from: int, base: int) -> Ranges:
        """Return the confirms of a batch that are due now; note the others."""
        ranges: Ranges = {}
        position = 0
        for channel, count, _, seqno in publish.publishers:
            if seqno:
                safe = max(0, min(count, unsafe_from - position))
                if safe:
                    _extend(ranges, channel, seqno, safe)
                if safe < count:
                    self._unconfirmed = self._unconfirmed or []
                    if publish.by_queue:
                        self._queues = (self._queues or set()) | {channel}
                    seq = base + position + safe
                    self._unconfirmed.append((seq, count - safe, channel, seqno + safe))
            position += count
        return ranges

    def waiting_channels(self) -> list[Ref]:
        """Return the channels with unconfirmed messages, each once."""
        return list(dict.fromkeys(channel for _, _, channel, _ in self._unconfirmed or ()))


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


def _take(
    waiting: list[Interval],
    first: int,
    end: int,
    ranges: Ranges,
    but: Container[Ref] | None = None,
) -> None:
    """Move the unconfirmed messages of ``first <= seq < end`` to the ranges, but those of some publishers."""
    low = max(0, bisect_right(waiting, first, key=_seq_of) - 1)
    high = bisect_left(waiting, end, key=_seq_of)
    left: list[Interval] = []
    for seq, count, channel, seqno in waiting[low:high]:
        start, stop = max(seq, first), min(seq + count, end)
        if start >= stop or (but is not None and channel in but):
            left.append((seq, count, channel, seqno))
            continue
        _extend(ranges, channel, seqno + start - seq, stop - start)
        if seq < start:
            left.append((seq, start - seq, channel, seqno))
        if stop < seq + count:
            left.append((stop, seq + count - stop, channel, seqno + stop - seq))
    waiting[low:high] = left
