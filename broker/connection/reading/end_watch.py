"""The peers of connections that are not read: whether they are still there.

A socket that is not read does not report its end, and a connection can be held up for hours by an alarm or a full
disk. So every ``POLL_S`` the node calls ``poll`` for the sockets that have been paused for a while. A connection
counts as paused when nobody has blocked or unblocked it between two polls, so the short pauses of the message path
cost nothing. What came before the peer's end can still be read.

An end in this sense is the end of the peer's stream (FIN), also of a peer that still reads, or a reset. The end of a
client that has filled both sockets' buffers waits behind them in its own system, and only a reset tells; it comes when
something is sent there. So while an alarm is raised, when the bytes of a paused connection are dropped if it ends, it
is sent a heartbeat at each poll. Otherwise it is not: the reset would destroy the messages in those buffers.

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

POLL_S: Final = 0.3  # the third poll after an end sees it
POLL_MIN_S: Final = 0.1  # between two polls; with heartbeats one takes some 5 ms
POLLED_MAX: Final = 1_000  # sockets per poll; where more are paused, polls follow each other sooner

_ENDED: Final = select.POLLHUP | getattr(select, "POLLRDHUP", 0)  # macOS says POLLHUP for both
# tcpi_unacked and tcpi_last_ack_recv of Linux's tcp_info; tcpi_probes is its fourth byte.
_TCP_INFO: Final = struct.Struct("=3xB20xI28xI")
_TCP_INFO_OPTION: Final = getattr(socket, "TCP_INFO", None)


class PausedConnection(Protocol):
    """A connection that is not read (``ReadControl``).

    Attributes:
        blocks: why; a new object whenever that changes, empty when it is read.
        blocks_seen: what ``blocks`` was at the last poll; None: it is not polled.
    """

    blocks: Any
    blocks_seen: Any

    @property
    def descriptor(self) -> int: ...

    def provoke_reset(self) -> None:
        """Send a heartbeat while an alarm is raised, so that an ended peer answers with a reset."""

    def peer_ended(self) -> None:
        """Called at each poll after the peer's end, until the connection is read or closed."""


class EndWatch:
    """Polls a node's paused connections for the ends of their peers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paused: dict[PausedConnection, None] = {}
        self._timer: TimerHandle | None = None

    def watch(self, paused: PausedConnection) -> None:
        """Poll a connection until it is read again."""
        self._paused[paused] = None
        paused.blocks_seen = {}
        self._poll_later()

    def forget(self, paused: PausedConnection) -> None:
        """Stop polling a connection, which is closed."""
        self._paused.pop(paused, None)
        if not self._paused and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _poll_later(self) -> None:
        if self._timer is None:
            share = POLLED_MAX / max(POLLED_MAX, len(self._paused))
            self._timer = self._clock.call_later(max(POLL_MIN_S, POLL_S * share), self._poll)

    def _poll(self) -> None:
        self._timer = None
        found = {}
        poll = select.poll()
        for paused in list(islice(self._paused, POLLED_MAX)):
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
            self._poll_later()


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
