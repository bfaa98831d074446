"""Batching: what the broker waits for so that it can handle more at once, how long at most, and what that buys.

The Python of a message costs a microsecond or two. A wake-up, a read, a send or a sync costs ten to a thousand, whether
it is for one message or for hundreds. So where messages come in close succession the broker holds some back until more
have come, and where one comes at a time it polls for the next instead of sleeping. A *policy* (``Batching``) says which
of these waits there are, and how long they last; None: there is no such wait. The setting ``latency`` names a policy.

=============  ================================  ======================  ==============================================
wait           what waits for what               how long at most        what it buys (docs/decisions)
=============  ================================  ======================  ==============================================
``acks``       acks that come one by one, for    15 ms, and a quarter    18 % of the CPU of a message, at some thousand
               others and for the next delivery  of the prefetch         messages per second (0014)
``publishes``  publishes that stream in without  1 ms; 2 ms where all    2.3 times the messages per second, for a third
               confirms, for others              go to backlogs          of the CPU, at 100 bytes (0046)
``flushes``    a flush of the store, for acks    32 polls without work;  a fifth of the CPU and three quarters of the
               that spare its messages the disk  20 ms in a busy loop    bytes on disk, 50 confirmed publishers (0045)
``busy_wait``  the loop, for sockets, before it  50 us                   2.2 times the messages per second, one
               sleeps; no message waits                                  publisher that waits for confirms (0044)
=============  ================================  ======================  ==============================================

Each begins where messages come closely enough to pay, and ends, for a while, where it does not. The modules that carry
them out say how: ``ack_coalescing`` and ``publish_coalescing``, ``msg_store/wal/driver.py``, ``busy_wait``.

``BALANCED`` has all four. ``LOW`` has none by which a message, an ack or a confirm waits: what has been read is handled
in the same drain, and when that ends its flush starts, unless one is on its way. It keeps the busy wait, which shortens
latency: a thread that sleeps is woken late. docs/performance.md has the latencies of both.

Neither policy changes what holds nothing back. How much a read takes (``read_sizes``) makes no message wait: a read
takes what has come. Work of the store that no confirm depends on is put off by 0.2 s (``LINGER_S`` in
``group_commit``): nobody waits for it, and a flush of its own would hold up the next confirm.

Turned down: a setting for each value, of which few mean anything without the others; a policy for each vhost or
connection, as the loop, its sockets and a vhost's disk are shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AckPauses:
    """When a connection that sends single acks is left unread (``ack_coalescing``)."""

    streak_reads: int = 16
    few_acks: int = 8  # in a read of a streak; more come together by themselves
    gap_s: float = 0.003  # between two reads of a streak
    pause_s: float = 0.010
    latest: float = 1.5  # lengths of a pause, after which it ends without a delivery, too
    worth_acks: int = 5  # that a pause should bring
    enough_acks: int = 32  # for which it lasts at most
    prefetch_parts: int = 4  # a pause may take one of them


@dataclass(frozen=True, slots=True)
class PublishPauses:
    """When a connection whose publishes stream in is left unread (``publish_coalescing``)."""

    pause_s: float = 0.001  # the grain of uvloop's timers
    backlog_pause_s: float = 0.002
    streak_s: float = 0.020  # uvloop's time, too, goes by milliseconds
    few_messages: int = 4  # in a read of a streak
    many_messages: int = 64  # in the first read; more come together by themselves
    worth: int = 4  # times as many messages as a read, that a pause should bring
    bytes_max: int = 256 * 1024  # that it may bring
    period_pauses: int = 16
    periods: int = 64  # before the next streak
    slower: float = 0.8  # of the streak's rate: less is too slow
    rest_reads: int = 1024  # behind a period that was too slow
    rest_reads_max: int = 64 * 1024  # they double


@dataclass(frozen=True, slots=True)
class FlushWindow:
    """How long a flush waits for acks (``msg_store/wal/driver.py``)."""

    window_s: float = 0.010
    quiet_rounds: int = 32  # of the loop, without work
    tries: int = 4  # flushes that wait although no ack has cancelled a write since
    rest_flushes: int = 16  # that do not wait, before one does to see whether acks come


@dataclass(frozen=True, slots=True)
class BusyWaits:
    """How long the loop polls before it sleeps (``busy_wait``)."""

    wait_s: float = 0.000_050
    earned: int = 1  # credit, by a wait that mail ends
    cost: int = 2  # of a wait in vain
    credit_max: int = 32
    pause_drains: int = 256  # without credit
    tries: int = 2  # waits in vain, at the first one and after a pause


@dataclass(frozen=True, slots=True)
class Batching:
    """A policy: which waits there are; None: no such wait."""

    acks: AckPauses | None
    publishes: PublishPauses | None
    flushes: FlushWindow | None
    busy_wait: BusyWaits | None


BALANCED: Final = Batching(AckPauses(), PublishPauses(), FlushWindow(), BusyWaits())
LOW: Final = Batching(None, None, None, BALANCED.busy_wait)

BALANCED_NAME: Final = "balanced"
POLICIES: Final = {"low": LOW, BALANCED_NAME: BALANCED}
