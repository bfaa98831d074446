"""The peers of connections that are not read: whether they are still there.

A socket that is not read does not report its end, and a connection can be held up for hours by an alarm or a full
disk. So the node looks at sockets that have been paused for a while, by ``poll``, every ``LOOK_S``; a connection
counts as paused when nobody has blocked or unblocked it between two looks, so the short pauses of the message path
are not looked at. What came before the peer's end can still be read.

An end in this sense is the end of the peer's stream (FIN), also of a peer that still reads, or a reset. The end of a
client that has filled both sockets' buffers waits behind them in its own system, and only a reset tells; it comes when
something is sent there. So while an alarm is raised, when the bytes of a paused connection are dropped if it ends, it
is sent a heartbeat at each look. Otherwise it is not: the reset would destroy the messages in those buffers.

A peer that vanished without either, because a cable was cut, leaves what is sent to it unacknowledged
(``is_unreachable``).

Turned down: epoll beside the loop's. It would see an end at once, but costs a descriptor and two calls for each
socket that is paused.
"""

from __future__ import annotations

import select
import socket
import struct
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from leveret.core.clock import Clock, TimerHandle

LOOK_S: Final = 0.3  # an end is seen by the third look after it
LOOK_PAUSE_MIN_S: Final = 0.1  # between two looks; with heartbeats one takes some 5 ms
LOOKS_MAX: Final = 1_000  # sockets per look; where more are paused, looks follow each other sooner

_ENDED: Final = select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # macOS says POLLHUP for both
# tcpi_unacked and tcpi_last_ack_recv of Linux's tcp_info; tcpi_probes is its fourth byte.
_TCP_INFO: Final = struct.Struct("=3xB20xI28xI")
_TCP_INFO_OPTION: Final = getattr(socket, "TCP_INFO", None)


class PausedConnection(Protocol):
    """A connection that is not read (``ReadControl``).

    Attributes:
        blocks: why; a new object whenever that changes, empty when it is read.
        blocks_seen: what ``blocks`` was at the last look; None: it is not looked at.
    """

    blocks: Any
    blocks_seen: Any

    @property
    def descriptor(self) -> int: ...

    def provoke_reset(self) -> None:
        """Send a heartbeat while an alarm is raised, so that an ended peer answers with a reset."""

    def peer_ended(self) -> None:
        """Called at each look after the peer's end, until the connection is read or closed."""


class EndWatch:
    """Looks for the ends of a node's paused connections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paused: dict[PausedConnection, None] = {}
        self._timer: TimerHandle | None = None

    def watch(self, paused: PausedConnection) -> None:
        """Look at a connection until it is read again."""
        self._paused[paused] = None
        paused.blocks_seen = {}
        self._look_later()

    def forget(self, paused: PausedConnection) -> None:
        """Look no more at a connection, which is closed."""
        self._paused.pop(paused, None)
        if not self._paused and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        if self._timer is None:
            share = LOOKS_MAX / max(LOOKS_MAX, len(self._paused))
            self._timer = self._clock.call_later(max(LOOK_PAUSE_MIN_S, LOOK_S * share), self._look)

    def _look(self) -> None:
        self._timer = None
        found = {}
        poll = select.poll()
        for paused in list(islice(self._paused, LOOKS_MAX)):
            del self._paused[paused]
            blocks = paused.blocks
            if not blocks:
                paused.blocks_seen = None
                continue
            self._paused[paused] = None  # behind the others
            if blocks is paused.blocks_seen and (descriptor := paused.descriptor) >= 0:
                poll.register(descriptor, _ENDED)
                found[descriptor] = paused
                paused.provoke_reset()
            paused.blocks_seen = blocks
        for descriptor, _ in poll.poll(0) if found else ():
            found[descriptor].peer_ended()
        if self._paused:
            self._look_later()


def is_unreachable(transport: Any, silence_s: float) -> bool:
    """Whether the peer's system has not acknowledged what was sent to it, for so long.

    A peer whose program does not read is reachable; on other systems than Linux every peer is.
    """
    found = transport.get_extra_info("socket")
    if found is None or _TCP_INFO_OPTION is None:
        return False
    try:
        info = found.getsockopt(socket.IPPROTO_TCP, _TCP_INFO_OPTION, _TCP_INFO.size)
    except OSError:  # closed meanwhile
        return False
    if len(info) < _TCP_INFO.size:
        return False
    probes, unacked, acked_ms_ago = _TCP_INFO.unpack(info)
    return bool((unacked or probes > 1) and acked_ms_ago >= silence_s * 1_000)
