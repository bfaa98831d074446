"""Channels that may come back: after a crash of an auto-delete queue those that had consumers subscribe again.

The queue is deleted when none of them has, or can any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import MonitorRef

Monitor: TypeAlias = "Callable[[Ref], MonitorRef]"
Demonitor: TypeAlias = "Callable[[MonitorRef], object]"


class ReturningChannels:
    """The channels that one queue waits for, monitored until they are forgotten."""

    __slots__ = ("_demonitor", "_monitors")

    def __init__(self, channels: Iterable[Ref], monitor: Monitor, demonitor: Demonitor) -> None:
        self._monitors = {channel: monitor(channel) for channel in channels}
        self._demonitor = demonitor

    def __bool__(self) -> bool:
        return bool(self._monitors)

    def forget(self, channel: Ref) -> None:
        """A channel has subscribed, or has left."""
        monitor = self._monitors.pop(channel, None)
        if monitor is not None:
            self._demonitor(monitor)
