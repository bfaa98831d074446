"""Fan-out: messages for very many queues are sent to so many of them in each turn of their channel.

The number of queues has no limit, and a mail to each costs some microseconds. So the publisher keeps a batch that is
too much for a turn, or whose route has more than ``FAN_OUT_QUEUES`` queues, in a ``FanOut``, and the channel goes on
with it, a slice of the queues per turn, before it handles anything else that its client has sent. Other actors have
their turns in between. A batch has up to ``FAN_OUT_MESSAGES``: were it cut instead, each mail would bring a queue fewer
messages, and a mail costs as much as many of them.

Invariants:

* **Order.** The channel holds its client's later runs, so every queue gets them behind the batch.
* **Route.** Routing fixes the queues. A queue that is deleted before its slice is passed over: it owes no
  confirm. A queue that has crashed and been restarted gets the batch in its new incarnation. A queue that
  is declared later gets nothing.
* **Confirms.** The channel itself owes an answer for the batch until the last slice has been sent. So queues may
  answer, die or be deleted between two slices, and confirm parts of the batch; the client is answered when all have.
* **Store.** Each slice is written as messages of its own: the store holds them for the queues of that slice, all of
  which are sent their mail in the same turn. So a channel that ends between two slices leaves no hold that nobody
  releases, a store that is replaced between two slices never sees a number of the one before, and a crash leaves
  nothing but messages that some queues have and others have not, none of them confirmed.
* **End.** A channel that is told to close does so behind the batch. One that is killed, or whose connection fails,
  leaves the queues of the later slices without it. No confirm was sent.

The price is disk space: bodies for 10,000 durable queues are written once per slice. A slice has as many rows in the
journal as queues, about 100 KB, which is more than most bodies; and a record names the queues of its slice only.

Turned down: a message that is written once, with a hold of the channel until the last slice is sent. A channel would
have to release it however it ends, in the store that has it, and each record would name all the queues: 500 KB per
message for 100,000 of them, encoded and checked in one turn of the flush. Turned down as well: an actor that sends in
the place of the channel, whose later messages would overtake it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.broker.channel.publishing.batch import Batch
    from leveret.broker.registry.registry import QueueEntry


@dataclass(slots=True, eq=False)
class FanOut:
    """A batch on its way to very many queues.

    Attributes:
        sent: the first so many queues have had their slice.
        has_reached: some queue has been sent the batch.
        is_refused: some queue could not be started, and cannot promise anything.
    """

    batch: Batch
    sent: int = 0
    has_reached: bool = False
    is_refused: bool = False

    def next_slice(self, count_max: int) -> list[QueueEntry]:
        """Return the queues that are next, without those that have been deleted."""
        first, self.sent = self.sent, self.sent + count_max
        return [each for each in self.batch.queues[first : self.sent] if each.ended != "deleted"]

    @property
    def is_complete(self) -> bool:
        return self.sent >= len(self.batch.queues)
