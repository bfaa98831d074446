"""Reading messages out of segments: the blocking half, for one thread.

A batch is read in the order of places, so that neighbours are read with one system call, and everything
is checked: the record's checksum, and that it is the requested message. A message that cannot be
read is not an error of the batch but a *failure* of that message, with the reason in words; the caller
looks up its place again, for the collector may have moved it and removed the segment.

A shortage says nothing about a message, and an input/output error little: a disk that is out of reach comes
back. Such messages are *put off*, and asked for again until they can be read; a message is never given up for an
error of the disk. A damaged sector holds up nobody but the queues whose message lies there: after such an
error the messages of a joint read are read one by one.

Descriptors are kept, the least recently used one is closed when there are too many. A segment that
was removed stays readable as long as it is open, and uses space until ``forget`` closes it.
"""

from __future__ import annotations

import errno
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from leveret.core.limits import DESCRIPTORS_OF_SEGMENTS, LARGE_BODY_BYTES
from leveret.core.log.loggers import logger
from leveret.core.message import Message, origin_of
from leveret.core.system.shortage import SHORTAGES, THREADS, reason_no
from leveret.msg_store.format.errors import Corrupt
from leveret.msg_store.format.folder import StoreFolder, StorePaths
from leveret.msg_store.format.kernel import runs
from leveret.msg_store.format.record import HEADER_BYTES, Place, header_at, unpack_meta
from leveret.msg_store.format.rows import Index, Location
from leveret.msg_store.reading.verify import Segment, search

PartsOf: TypeAlias = Callable[[bytes], tuple[bytes, bytes]]

log = logger(__name__)

JOIN_BYTES_MAX: Final = 2 * 1024 * 1024  # of one read of several records
GAP_BYTES_MAX: Final = 16 * 1024  # read over, rather than read twice
NEIGHBOURS: Final = 16  # on either side of a message that is searched for
# Not the message's fault: the same read may succeed in a while.
PASSING: Final = frozenset({*SHORTAGES, *THREADS, errno.EIO, errno.EINTR})


@dataclass(slots=True)
class Outcome:
    """The outcome of a batch; every requested message is in one of the three."""

    messages: dict[int, Message] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)  # why a message was not read
    put_off: list[int] = field(default_factory=list)  # numbers to ask for again in a while
    why_put_off: Exception | None = None
    body_bytes: int = 0


class SegmentReader:
    """Reads the segments of a store."""

    def __init__(self, folder: StorePaths, descriptors_max: int = DESCRIPTORS_OF_SEGMENTS) -> None:
        self._folder = folder
        self._descriptors_max = descriptors_max
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._last_meta: bytes | None = None
        self._last_origin = self._last_head = b""

    def read(
        self, msg_nos: list[int], places: list[Place], parts_of: PartsOf | None = None
    ) -> Outcome:
        """Read messages, in the order of their places.

        ``parts_of`` returns origin and head of a record's meta, or raises ``Corrupt``; without it those of
        any meta.
        """
        outcome = Outcome()
        found = runs(places, GAP_BYTES_MAX, JOIN_BYTES_MAX)
        if found is None:
            order = sorted(range(len(places)), key=lambda at: (places[at][0], places[at][1]))
            msg_nos, places = [msg_nos[at] for at in order], [places[at] for at in order]
            found = runs(places, GAP_BYTES_MAX, JOIN_BYTES_MAX)
            assert found is not None, "sorted places do not ascend"
        for first, end in found:
            cut = slice(first, end)
            self._read_run(msg_nos[cut], places[cut], parts_of or self._parts_of, outcome)
        return outcome

    def _read_run(
        self, msg_nos: list[int], places: list[Place], parts_of: PartsOf, outcome: Outcome
    ) -> None:
        file_no = places[0][0]
        try:
            self._read_joined(self.segment(file_no), msg_nos, places, parts_of, outcome)
        except (OSError, MemoryError) as error:
            left = [(no, at) for no, at in zip(msg_nos, places, strict=True)
                if no not in outcome.messages and no not in outcome.failures]  # fmt: skip
            number = reason_no(error)
            if number == errno.EIO and len(left) > 1:
                for msg_no, place in left:
                    self._read_run([msg_no], [place], parts_of, outcome)
            elif number in PASSING:
                self.close()  # for descriptors it may be ours that are too many
                outcome.put_off += [msg_no for msg_no, _ in left]
                outcome.why_put_off = error
            else:
                why = f"segment {file_no:08x}: {getattr(error, 'strerror', None) or error}"
                outcome.failures.update({msg_no: why for msg_no, _ in left})

    def _read_joined(
        self,
        segment: Segment,
        msg_nos: list[int],
        places: list[Place],
        parts_of: PartsOf,
        outcome: Outcome,
    ) -> None:
        if len(places) == 1 and places[0][2] > LARGE_BODY_BYTES:
            self._read_one(segment, msg_nos[0], places[0], parts_of, outcome)
            return
        start, last = places[0][1], places[-1]
        data = segment.bytes_at(start, last[1] + last[2] - start)
        others, body_bytes = segment.decode_run(
            data, start, msg_nos, places, parts_of, outcome.messages
        )
        outcome.body_bytes += body_bytes
        for msg_no, place in others:
            self._read_one(segment, msg_no, place, parts_of, outcome)

    def _read_one(
        self, segment: Segment, msg_no: int, place: Place, parts_of: PartsOf, outcome: Outcome
    ) -> None:
        """Read one message with bytes of its own; or note its failure.

        A large one, or one that was damaged among others: the file may have grown since.
        """
        file_no, offset, length = place[:3]
        try:
            record = segment.read(offset, length, msg_no)
            outcome.messages[msg_no] = (*parts_of(record.meta), record.body)
            outcome.body_bytes += len(record.body)
        except Corrupt as error:
            outcome.failures[msg_no] = f"{error}, segment {file_no:08x}, offset {offset}"

    def _parts_of(self, packed: bytes) -> tuple[bytes, bytes]:
        """Return both; messages of one publisher share them, as when they came."""
        if packed != self._last_meta:
            meta = unpack_meta(packed)
            origin = origin_of(meta.exchange, *(meta.routing_keys or (b"",)))
            self._last_origin = origin if origin != self._last_origin else self._last_origin
            self._last_head, self._last_meta = meta.head, packed
        return self._last_origin, self._last_head

    def search(self, missing: Mapping[int, Location], index: Index) -> dict[int, Location] | None:
        """Search for messages in the segments of their wrong places, and in those of their neighbours.

        Messages that were published one after the other lie in the same segment, or in the next, unless the
        collector has moved one of them. ``index`` returns the places of neighbours. A message whose place is right,
        which is damaged there, is not searched for. None: the disk cannot be read now.
        """
        near = {
            each for no in missing for each in range(max(0, no - NEIGHBOURS), no + NEIGHBOURS + 1)
        }
        named = Counter(at[0] for at in index.locations(near).values())
        try:
            wrong = {no: at for no, at in missing.items() if not self._is_right(no, at, named)}
            found = search(self._folder, wrong, named) if wrong else {}
        except FileNotFoundError:  # the collector has removed a segment meanwhile
            return None
        except (OSError, MemoryError) as error:
            if reason_no(error) in PASSING:
                return None
            log.error("messages not searched for error=%s", error)
            return {}
        return {no: (*at[:4], missing[no][4]) for no, at in found.items()}

    def _is_right(self, msg_no: int, at: Location, named: Mapping[int, int]) -> bool:
        """Whether a place is right: the message's header is there, or its segment has gone.

        ``named``: how many places, with this one, name which segment.
        """
        file_no, offset, length = at[:3]
        try:
            header = self.segment(file_no).bytes_at(offset, HEADER_BYTES)
            return header_at(header) == (msg_no, length)
        except Corrupt:
            return False
        except FileNotFoundError:
            return named.get(file_no, 0) > 1

    # Descriptors.

    def segment(self, file_no: int) -> Segment:
        """Return a segment, opened if it is not; it stays open until others need its descriptor."""
        segment = self._open.get(file_no)
        if segment is not None:
            self._open.move_to_end(file_no)
            return segment
        while len(self._open) >= self._descriptors_max:
            self._open.popitem(last=False)[1].close()
        segment = Segment(self._folder, file_no)
        self._open[file_no] = segment
        return segment

    def forget(self, file_no: int) -> None:
        """Close a segment, because it was removed or because its bytes were doubtful."""
        segment = self._open.pop(file_no, None)
        if segment is not None:
            segment.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    # Damage.

    def set_aside(self, place: Place) -> str | None:
        """Keep the bytes of a damaged record in quarantine; return their name, None without bytes or room."""
        file_no, offset, length = place[:3]
        if not isinstance(self._folder, StoreFolder):
            return None  # it has no quarantine
        self.forget(file_no)
        try:
            data = self.segment(file_no).bytes_at(offset, length)
            if not data:
                return None
            return self._folder.set_aside(self._folder.rdq_path(file_no), data, offset)
        except FileNotFoundError:
            return None  # the whole segment is missing
        except OSError as error:
            where = f"segment={file_no:08x} offset={offset}"
            log.error("damaged record not set aside %s error=%s", where, error)
            return None
