"""The publications and acknowledgements that a member still has to send to its right neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.gm.ring.frames import Entry
from leveret.gm.ring.streams import in_parts, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.gm.records.group import MemberId
    from leveret.gm.ring.streams import Stream
    from leveret.gm.ring.view import View


class News:
    """The streams of which the right neighbour has not been sent everything.

    Args:
        frame_bytes: of messages in one frame, about.

    Attributes:
        is_urgent: whether others' publications or confirmed broadcasts are among them.
    """

    __slots__ = ("_frame_bytes", "_streams", "is_urgent")

    def __init__(self, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._streams: dict[MemberId, Stream] = {}
        self.is_urgent = False

    def __bool__(self) -> bool:
        return bool(self._streams)

    @property
    def is_full(self) -> bool:
        """Whether there is enough for a frame."""
        size = 0
        for stream in self._streams.values():
            size += stream.unsent_bytes
        return size >= self._frame_bytes

    def note(self, stream: Stream, is_urgent: bool) -> None:
        """Note that a stream has got publications or acknowledgements."""
        self._streams[stream.publisher] = stream
        if is_urgent:
            self.is_urgent = True

    def forget(self, publisher: MemberId) -> None:
        """Send nothing more of a publisher."""
        self._streams.pop(publisher, None)

    def clear(self) -> None:
        """Note that the right neighbour has been sent everything, or that there is none."""
        for stream in self._streams.values():
            stream.take_unsent()
        self._streams = {}
        self.is_urgent = False

    def take(self, view: View) -> Iterator[list[Entry]]:
        """Yield the entries of one frame after the other.

        The dead come first, so that nothing of them is overtaken by their heir's mark.
        """
        streams = list(self._streams.values())
        self._streams = {}
        self.is_urgent = False
        if len(streams) > 1:
            streams.sort(key=lambda stream: stream.publisher in view.alive)
        entries = [entry for stream in streams for entry in self._entries(stream, view.right)]
        return in_parts(entries, self._frame_bytes)

    def _entries(self, stream: Stream, receiver: MemberId) -> Iterator[Entry]:
        """Yield the news of one stream; for its publisher only the number up to which publications have been round."""
        size = stream.unsent_bytes
        first, bodies = stream.take_unsent()
        if stream.publisher == receiver:
            if bodies:
                yield Entry(receiver, stream.last + 1, [], stream.acked)
        elif size <= self._frame_bytes:
            yield Entry(stream.publisher, first, bodies, stream.acked)
        else:
            for begin, end in runs(bodies, self._frame_bytes):
                acked = min(stream.acked, first + end - 1)
                yield Entry(stream.publisher, first + begin, bodies[begin:end], acked)
