"""The mails of an amqqueue to itself, and the priorities of the mails in its mailbox.

Higher levels first, as in ``rabbit_amqqueue_process``; 0 for all other mail.
"""

from __future__ import annotations

from typing import Final

from leveret.broker import mail
from leveret.queue_backing.api import Confirmed, FetchReady


class Continue:
    """To itself: go on where the budget of the last turn ended.

    It comes behind the mail that waits now, not behind all: publishers may refill the mailbox as fast as it is handled.
    """


class DropExpired:
    """Timer: the head has expired."""


class Finish:
    """To itself: all mail before the deletion has been answered."""


class MaybeExpire:
    """Timer: the queue may have been unused for too long."""


class CloseAccounts:
    """Timer: have the publishers been idle for a while?"""


class CheckReturned:
    """To itself, after a restart: delete an auto-delete queue to which no consumer can return."""


LEVELS: Final[dict[type, int]] = {
    MaybeExpire: 8,
    DropExpired: 8,
    Confirmed: 6,
    mail.Ack: 4,
    mail.Reject: 4,
    mail.Requeue: 4,
    mail.Resume: 4,
    FetchReady: 3,
    Finish: -1,
}
INFO_LEVEL: Final = 9
OWNER_LEVEL: Final = 8  # the end of the connection that owns an exclusive queue
