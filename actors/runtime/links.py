"""Links and monitors: they carry the news of an actor's end.

A link is symmetric and carries exit signals; a monitor is one-sided and gives one ``Down``. Both
sides' cells know of either, so that the actor that dies first leaves nothing behind in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leveret.actors.runtime.ref import AFAR, DEAD, REMOTE, Cell
from leveret.core import small_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.remote import RemoteInbox
    from leveret.actors.runtime.signals import MonitorRef


def remote_inbox(cell: Cell) -> RemoteInbox:
    """Return the way to the actor of a cell that is ``AFAR``."""
    return cast("RemoteInbox", cell.inbox)


def tell_link(one: Ref, other: Ref) -> None:
    """Tell the other side of a new link if one of two live actors runs there."""
    for far, near in ((one.cell, other), (other.cell, one)):
        if far.state & AFAR:
            remote_inbox(far).link(near)


def waits_for(to: Ref, sender: Ref | None, call: Callable[[], None]) -> bool:
    """Call back when all mail of a sender to an actor has left this process; return False if none waits."""
    return bool(to.cell.state & AFAR) and remote_inbox(to.cell).when_written(sender, call)


def link(one: Cell, other: Ref) -> None:
    """Link two live actors; a second link changes nothing."""
    one.links = small_set.add(one.links, other)
    other.cell.links = small_set.add(other.cell.links, one.ref)


def unlink(one: Ref, other: Ref) -> None:
    """Undo the link, if there is one."""
    for far, near in ((one.cell, other), (other.cell, one)):
        if far.state & AFAR and small_set.contains(far.links, near):
            remote_inbox(far).unlink(near)
    one.cell.links = small_set.discard(one.cell.links, other)
    other.cell.links = small_set.discard(other.cell.links, one)


def watch(monitor: MonitorRef) -> None:
    """Put a monitor in force; a dead target is reported at once, as ``noproc`` or ``noconnection``."""
    target = monitor.target.cell
    if target.state & (DEAD | REMOTE):
        if target.state & DEAD:
            monitor.tell(target.doom)
            return
        remote_inbox(target).watch()
    target.watchers = small_set.add(target.watchers, monitor)
    if monitor.watcher is not None:
        cell = monitor.watcher.cell
        cell.monitors = small_set.add(cell.monitors, monitor)


def unwatch(monitor: MonitorRef) -> None:
    """Take a monitor back; its ``Down`` is not handled any more."""
    target = monitor.target.cell
    target.watchers = small_set.discard(target.watchers, monitor)
    if monitor.watcher is not None:
        cell = monitor.watcher.cell
        cell.monitors = small_set.discard(cell.monitors, monitor)
    monitor.withdraw()


def leave_link(one: Cell, dead: Ref) -> bool:
    """Cut the link with an actor that has ended; return whether there was one still."""
    if not small_set.contains(one.links, dead):
        return False
    one.links = small_set.discard(one.links, dead)
    return True


def leave_watcher(monitor: MonitorRef) -> bool:
    """Forget a monitor on an actor that has ended; return whether it was in force still."""
    if monitor.watcher is None:
        return True
    watcher = monitor.watcher.cell
    if not small_set.contains(watcher.monitors, monitor):
        return False
    watcher.monitors = small_set.discard(watcher.monitors, monitor)
    return True


def leave_monitor(monitor: MonitorRef) -> None:
    """Take back a monitor of an actor that has ended."""
    target = monitor.target.cell
    target.watchers = small_set.discard(target.watchers, monitor)
