"""StoredIndex: the ``QueueIndex`` of a queue over a message store.

It translates between the queue's entries and the store's rows, a batch at a time, and keeps nothing per
message but the stretch of rows that is being loaded (``row_window.py``). The rows of persistent messages
come from the store's ``QueueClient``, those of paged-out transients from the ``TransientStore``; a range is
read from both and merged.

The *owner* hears which messages are safe and when the queue should ``resume``; it passes that on as mail,
so the queue is never entered while it is at work.

For a damaged content the answer is ``LOST``; the queue acks its row, and the store's log and quarantine
name the lost messages and their queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from leveret.core.entry import EXPIRY_MS, MSG_NO, PERSISTENT, SEQ, SIZE, seq_of
from leveret.core.message import LOST
from leveret.msg_store.format.kernel import bytes_of
from leveret.msg_store.format.kernel import entries as entries_of
from leveret.msg_store.format.rows import SEQ_END
from leveret.msg_store.reading.read_cache import transient_keys
from leveret.queue_backing.index.row_window import Answer, RowWindow

if TYPE_CHECKING:
    from leveret.core.entry import Entry
    from leveret.core.message import Message
    from leveret.msg_store.client import CleanTerms, QueueClient, QueueOwner
    from leveret.msg_store.format.seq_range import SeqRange
    from leveret.msg_store.reading.read_cache import ReadCache
    from leveret.msg_store.transient.store import TransientStore

_PERSISTENT_ONLY: Final = frozenset((True,))
_CROWDED_MAX: Final = 128  # contents that a queue has read at once when many queues do

_row_of: Final[Callable[[Entry], tuple[int, int]]] = itemgetter(MSG_NO, EXPIRY_MS)
_acked_of: Final[Callable[[Entry], tuple[int, int]]] = itemgetter(SEQ, MSG_NO)
_wanted_of: Final[Callable[[Entry], tuple[int, int]]] = itemgetter(MSG_NO, SIZE)
_msg_no_of: Final[Callable[[Entry], int]] = itemgetter(MSG_NO)
_is_persistent: Final[Callable[[Entry], bool]] = itemgetter(PERSISTENT)


class StoredIndex:
    """See ``QueueIndex`` for the methods.

    Args:
        client: the queue's part in the store.
        owner: hears of confirms, refusals and the end of reads, from the client.
    """

    __slots__ = ("_cache", "_client", "_first_seq", "_has_paged", "_lost", "_owner",
        "_queue_no", "_rows", "_transient_rows", "_transients", "_waiting")  # fmt: skip

    def __init__(self, client: QueueClient, owner: QueueOwner) -> None:
        self._client = client
        self._owner = owner
        self._queue_no = client.queue_no
        self._transients: TransientStore = client.transients
        self._cache: ReadCache = client.read_cache
        self._rows: RowWindow | None = None  # made on first use, as the next one
        self._transient_rows: RowWindow | None = None
        self._has_paged = False
        self._waiting: set[int] = set()  # seqs of transients on their way
        self._lost: set[int] = set()  # seqs of transients, which are not asked for again
        self._first_seq = client.attach(owner, self._lost.update)

    # Issue.

    def publish(self, entries: list[Entry]) -> None:
        first_seq = entries[0][SEQ]
        if self._rows is not None:
            self._rows.cut(first_seq)
        self._client.publish(first_seq, list(map(_row_of, entries)), bytes_of(entries))

    def discard(self, first_msg_no: int, count: int) -> None:
        self._client.discard(first_msg_no, count)

    def page_out(self, entries: list[Entry], must: bool = False) -> int:
        self._has_paged = True
        return self._transients.page_out(self._queue_no, entries, must)

    def add(self, entries: list[Entry]) -> None:
        """Have rows of transients read again: the store has them since they were paged out."""
        if self._transient_rows is not None:
            self._transient_rows.cut(min(map(seq_of, entries)))

    def ack(self, entries: list[Entry]) -> None:
        if self._has_paged:
            transient = [entry for entry in entries if not entry[PERSISTENT]]
            if transient:
                self._ack_transients(transient)
                if len(transient) == len(entries):
                    return
                entries = list(filter(_is_persistent, entries))
        self._client.ack(list(map(_acked_of, entries)), bytes_of(entries))
        if self._rows is not None:
            self._rows.forget(map(seq_of, entries))

    def _ack_transients(self, entries: list[Entry]) -> None:
        self._transients.ack(self._queue_no, entries)
        if self._transient_rows is not None:
            self._transient_rows.forget(map(seq_of, entries))
        self._lost.difference_update(map(seq_of, entries))

    def ack_range(self, seqs: SeqRange, messages: int, size_bytes: int) -> None:
        self._client.ack_range(seqs, messages, size_bytes)
        if self._rows is not None:
            self._rows.forget_range(seqs)
        if self._has_paged:
            self._transients.ack_range(self._queue_no, seqs)
            if self._transient_rows is not None:
                self._transient_rows.forget_range(seqs)

    # Rows.

    def read(self, low: int, high: int, limit: int) -> list[Entry] | None:
        persistent = self._window().read(low, high, limit)
        if not self._holds_transients():
            return persistent
        if self._transient_rows is None:
            self._transient_rows = RowWindow(self._ask_transient_rows, self._owner.resume)
        transient = self._transient_rows.read(low, high, limit)
        if persistent is None or transient is None:
            return None
        if not transient or not persistent:
            return persistent or transient
        return list(merge(persistent, transient, key=seq_of))[:limit]

    def _window(self) -> RowWindow:
        if self._rows is None:
            self._rows = RowWindow(self._ask_rows, self._owner.resume)
        return self._rows

    def ahead(self, low: int, high: int, limit: int) -> list[Entry]:
        return [] if self._holds_transients() else self._window().ahead(low, high, limit)

    def _holds_transients(self) -> bool:
        return self._has_paged and self._transients.holds(self._queue_no)

    def _ask_rows(self, low: int, limit: int, answer: Answer) -> None:
        self._client.rows(
            low, limit, lambda rows, upto: answer(entries_of(rows, persistent=True), upto)
        )

    def _ask_transient_rows(self, low: int, limit: int, answer: Answer) -> None:
        def got(rows: list[Any]) -> None:
            upto = rows[-1][0] + 1 if len(rows) == limit else SEQ_END
            answer(entries_of(rows, persistent=False), upto)

        self._transients.rows(self._queue_no, low, SEQ_END, limit, got)

    # Contents.

    def fetch_contents(self, entries: list[Entry]) -> list[Message | None]:
        """Return the contents in order.

        The contents before the first that must be read leave the read cache: they are not fetched again.
        """
        keys: list[int]
        found: list[Message | None]
        kinds = set(map(_is_persistent, entries)) if self._has_paged else _PERSISTENT_ONLY
        if len(kinds) == 2:
            keys, found = self._cached_of_both(entries)
        else:
            persistent = True in kinds
            keys = self._keys(entries, persistent)
            found = [*self._cache.take(keys)]
            taken = len(found)
            if taken == len(keys):
                return found
            if persistent:
                found += self._client.cached(keys[taken:])
            else:
                seqs = list(map(seq_of, entries[taken:]))
                found += self._cached_transients(seqs, keys[taken:])
        given = found.index(None) if None in found else len(found)
        self._cache.drop(keys[:given])
        if LOST in found:
            self._report_lost(entries, found)
        return found

    def _keys(self, entries: list[Entry], persistent: bool) -> list[int]:
        """Return the keys in the read cache of entries of one kind."""
        if persistent:
            return list(map(_msg_no_of, entries))
        return transient_keys(self._queue_no, map(seq_of, entries))

    def _cached_of_both(self, entries: list[Entry]) -> tuple[list[int], list[Message | None]]:
        persistent = [entry[MSG_NO] for entry in entries if entry[PERSISTENT]]
        seqs = [entry[SEQ] for entry in entries if not entry[PERSISTENT]]
        keys = transient_keys(self._queue_no, seqs)
        some = iter(self._client.cached(persistent))
        others = iter(self._cached_transients(seqs, keys))
        some_keys, other_keys = iter(persistent), iter(keys)
        kinds = list(map(_is_persistent, entries))
        return (
            [next(some_keys if kind else other_keys) for kind in kinds],
            [next(some if kind else others) for kind in kinds],
        )

    def _cached_transients(self, seqs: list[int], keys: list[int]) -> list[Message | None]:
        found: list[Message | None] = list(map(self._cache.contents.get, keys))
        missing = [at for at, message in enumerate(found) if message is None]
        if missing:
            in_ram = self._transients.contents(self._queue_no, [seqs[at] for at in missing])
            for at, message in zip(missing, in_ram, strict=True):
                found[at] = LOST if seqs[at] in self._lost else message
        return found

    def _report_lost(self, entries: list[Entry], found: Sequence[Message | None]) -> None:
        lost = [entry for entry, each in zip(entries, found, strict=True) if each is LOST]
        self._client.report_lost([_acked_of(entry) for entry in lost if entry[PERSISTENT]])

    def prefetch(self, entries: list[Entry]) -> None:
        """Have contents read; fewer when there is little room for them."""
        if self._cache.is_crowded:
            entries = entries[:_CROWDED_MAX]
        if self._has_paged:
            transient = [entry for entry in entries if not entry[PERSISTENT]]
            if transient:
                self._prefetch_transients(list(map(seq_of, transient)))
                if len(transient) == len(entries):
                    return
                entries = list(filter(_is_persistent, entries))
        if entries:
            self._client.prefetch(map(_wanted_of, entries))

    def _prefetch_transients(self, seqs: list[int]) -> None:
        waiting, lost, cached = self._waiting, self._lost, self._cache.contents
        seqs = [seq for seq in seqs if seq not in waiting and seq not in lost]
        keys = transient_keys(self._queue_no, seqs)
        seqs = [seq for seq, key in zip(seqs, keys, strict=True) if key not in cached]
        in_ram = self._transients.contents(self._queue_no, seqs)
        asked = [seq for seq, message in zip(seqs, in_ram, strict=True) if message is None]
        if asked:
            waiting.update(asked)
            self._transients.read(self._queue_no, asked, lambda found: self._came(asked, found))

    def _came(self, asked: list[int], found: dict[int, Message]) -> None:
        self._waiting.difference_update(asked)
        keys = transient_keys(self._queue_no, found)
        self._cache.put(dict(zip(keys, found.values(), strict=True)))
        self._owner.resume()

    # Start and end.

    def persistent(self) -> tuple[int, int]:
        return self._client.messages, self._client.size_bytes

    def bounds(self) -> tuple[int, int]:
        return self._client.low, self._first_seq

    def terms(self) -> CleanTerms | None:
        return self._client.take_terms()

    def terminate(self, next_seq: int, next_deliver: int) -> None:
        self._close()
        self._client.terminate(next_seq, next_deliver)

    def forget(self) -> None:
        self._close()
        self._client.forget()

    def delete(self) -> None:
        self._close()
        self._client.delete()

    def _close(self) -> None:
        for window in (self._rows, self._transient_rows):
            if window is not None:
                window.close()
        self._rows = self._transient_rows = None
