"""RabbitMQ's rules for sending heartbeats and for detecting a dead peer, without a clock.

The owner of the connection calls ``half_interval`` every ``interval_s / 2`` seconds and ``received``
whenever bytes came. The sending side checks every half interval and sends if nothing was written since the last
check, and always at the first check. The receiving side checks every whole interval and gives up at the second
successive check without new bytes: a silent peer is disconnected after two to three intervals. All bytes count, not
only heartbeats.
"""

from __future__ import annotations


class Heartbeat:
    """Heartbeats of one connection; ``interval_s`` as agreed in tune-ok, above 0."""

    __slots__ = ("_half_intervals", "_has_received", "_has_sent", "_silent_checks", "interval_s")

    def __init__(self, interval_s: int) -> None:
        if interval_s <= 0:
            raise ValueError(f"heartbeat interval of {interval_s} s")
        self.interval_s = interval_s
        self._half_intervals = 0
        self._silent_checks = 0
        self._has_received = True  # the handshake
        self._has_sent = False

    def received(self) -> None:
        self._has_received = True

    def half_interval(self, has_written: bool, is_paused: bool = False) -> tuple[bool, bool]:
        """Check every half interval; return whether to send, and whether the peer is gone.

        A connection that ``is_paused`` is not read, so its silence means nothing.
        """
        must_send = not has_written or not self._has_sent
        self._has_sent = True
        return must_send, self._is_gone(is_paused)

    def _is_gone(self, is_paused: bool) -> bool:
        if is_paused:
            self._half_intervals = self._silent_checks = 0
            self._has_received = True
            return False
        self._half_intervals += 1
        if self._half_intervals % 2:
            return False
        self._silent_checks = 0 if self._has_received else self._silent_checks + 1
        self._has_received = False
        return self._silent_checks >= 2
