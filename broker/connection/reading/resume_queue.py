"""The queues that wait until a connection takes more: a few at a time are resumed, in turn.

A connection takes no more while its transport is full, and while ``WAITING_BYTES_MAX`` wait in the mailboxes of its
channels: a channel that is busy publishing would write what a thousand queues have sent it meanwhile in one turn.

A connection takes a few hundred KiB before its transport is full again, often no more than a few queues
have at hand. So when it takes more, ``RESUMES`` queues are resumed, others when these have had their turn, as long
as there is room. Channels take turns, and so do the queues of a channel. A queue that finds the connection
full again keeps its place: it comes before all others when there is room.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from leveret.broker.mail import Resume

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.limiter import DeliveryGate

RESUMES: Final = 8  # per round of the run queue
WAITING_BYTES_MAX: Final = 1024 * 1024


class Gates(Protocol):
    """The gates of a connection (``channel_table.py``)."""

    def close_gates(self) -> None: ...
    def open_gates(self) -> None: ...


class ResumeQueue:
    """The waiting queues of one connection, by the gates of its channels.

    Attributes:
        is_open: the connection takes more.
        is_overfull: too many bytes wait in the mailboxes of the channels.
    """

    __slots__ = ("_all_gates", "_gates", "_is_due", "_resumed_for_nothing", "_runtime", "_waiting_bytes", "is_open",
        "is_overfull")  # fmt: skip

    def __init__(self, runtime: Runtime, all_gates: Gates) -> None:
        self._runtime = runtime
        self._all_gates: Gates | None = all_gates
        self._waiting_bytes = 0
        self.is_overfull = False
        self._gates: deque[DeliveryGate] | None = None  # made on first use: most wait for nothing
        self._resumed_for_nothing: dict[tuple[DeliveryGate, Ref], None] = {}
        self._is_due = False
        self.is_open = True

    def open(self) -> None:
        """The connection takes more: resume the queues that have waited longest."""
        self.is_open = True
        self._resume()

    def close(self) -> None:
        """The connection takes no more."""
        self.is_open = False

    def connection_ended(self) -> None:
        """Forget the gates, which know this queue: they would be garbage that only a full collection finds."""
        self._all_gates = self._gates = None
        self._resumed_for_nothing.clear()

    def join(self, gate: DeliveryGate) -> None:
        if self._gates is None:
            self._gates = deque()
        self._gates.append(gate)
        if self.is_open:  # the channel is about to end; its last method may wait
            self._continue()

    def rejoin(self, gate: DeliveryGate, queue: Ref) -> None:
        if not self.is_open:  # else the channel is ending, and gets nothing more
            self._resumed_for_nothing[gate, queue] = None

    def leave(self, gate: DeliveryGate) -> None:
        """The channel of a gate has ended."""
        if gate.forget_waiting() and self._gates is not None:
            self._gates.remove(gate)
        gate.channel_ended()

    def deliveries_wait(self, size_bytes: int) -> None:
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > WAITING_BYTES_MAX and not self.is_overfull:
            self.is_overfull = True
            if self._all_gates is not None:
                self._all_gates.close_gates()

    def deliveries_written(self, size_bytes: int) -> None:
        self._waiting_bytes -= size_bytes
        if self.is_overfull and not self._waiting_bytes:
            self.is_overfull = False
            if self._all_gates is not None:
                self._all_gates.open_gates()

    def _resume(self) -> None:
        for gate, queue in self._take():
            if gate.channel is not None:
                self._runtime.send(queue, Resume(gate.channel))
        if self._gates or self._resumed_for_nothing:
            self._continue()

    def _take(self) -> list[tuple[DeliveryGate, Ref]]:
        """Take the queues whose turn it is."""
        taken = list(islice(self._resumed_for_nothing, RESUMES))
        for each in taken:
            del self._resumed_for_nothing[each]
        gates = self._gates or deque()
        while gates and len(taken) < RESUMES:
            gate = gates.popleft()
            queue = gate.take_one()
            if queue is not None:
                taken.append((gate, queue))
            if gate.waiting is not None:
                gates.append(gate)
        return taken

    def _continue(self) -> None:
        """Resume more when all that have been resumed have had their turn."""
        if not self._is_due:
            self._is_due = True
            self._runtime.after_round(self._round_over)

    def _round_over(self) -> None:
        self._is_due = False
        if self.is_open:
            self._resume()
