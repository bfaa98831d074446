"""When to send a heartbeat and when the peer is gone, as RabbitMQ decides it; no clock in here.

Who owns the connection calls ``half_interval`` every ``interval_s / 2`` seconds and ``received``
whenever bytes came. The sending side looks every half interval and sends if nothing was written since
the look before, at the first look always. The receiving side looks every whole interval and gives up
at the second look in a row that finds nothing new: a peer that falls silent is cut off between two
and three intervals later. Any bytes count, not heartbeats alone.
"""

from __future__ import annotations


class Heartbeat:
    """Heartbeats of one connection.

    Args:
        interval_s: as agreed in tune-ok; above 0.
    """

    __slots__ = ("_half_intervals", "_has_received", "_has_sent", "_silent_looks", "interval_s")

    def __init__(self, interval_s: int) -> None:
        if interval_s <= 0:
            raise ValueError(f"heartbeat interval of {interval_s} s")
        self.interval_s = interval_s
        self._half_intervals = 0
        self._silent_looks = 0
        self._has_received = True  # the handshake
        self._has_sent = False

    def received(self) -> None:
        """Note that bytes came."""
        self._has_received = True

    def half_interval(self, has_written: bool, is_paused: bool = False) -> tuple[bool, bool]:
        """Look, half an interval after the look before.

        Args:
            has_written: whether anything was written to the socket since the look before.
            is_paused: the connection is blocked, so that nothing is read and silence means nothing.

        Returns:
            Whether to send a heartbeat, and whether the peer is gone.
        """
        must_send = not has_written or not self._has_sent
        self._has_sent = True
        return must_send, self._is_gone(is_paused)

    def _is_gone(self, is_paused: bool) -> bool:
        if is_paused:
            self._half_intervals = self._silent_looks = 0
            self._has_received = True
            return False
        self._half_intervals += 1
        if self._half_intervals % 2:
            return False
        self._silent_looks = 0 if self._has_received else self._silent_looks + 1
        self._has_received = False
        return self._silent_looks >= 2
