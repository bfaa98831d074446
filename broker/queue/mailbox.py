"""The mails of an amqqueue to itself, and the priorities of the mails in its mailbox.

Higher levels first, as in ``rabbit_amqqueue_process``; 0 for all other mail. And which calls have to wait, or need no
queue that is still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.calls import Request
from leveret.actors.runtime.signals import Down
from leveret.broker import mail, queue_requests
from leveret.queue_backing.api import Confirmed, FetchReady

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref


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


class SendDeadLetters:
    """To itself: go on dead-lettering where the budget of the last turn ended, or the disk has caught up."""


class RetryDeadLetters:
    """Timer: do the targets of dead letters that had crashed run again?"""


class CheckReturned:
    """To itself, after a restart: delete an auto-delete queue to which no consumer can return."""


CONTINUE: Final = Continue()
DROP_EXPIRED: Final = DropExpired()
FINISH: Final = Finish()
CHECK_RETURNED: Final = CheckReturned()
MAYBE_EXPIRE: Final = MaybeExpire()
CLOSE_ACCOUNTS: Final = CloseAccounts()

LEVELS: Final[dict[type, int]] = {
    MaybeExpire: 8,
    DropExpired: 8,
    Confirmed: 6,
    mail.Confirm: 6,  # of dead letters
    mail.Ack: 4,
    mail.Reject: 4,
    mail.Requeue: 4,
    mail.Resume: 4,
    FetchReady: 3,
    Finish: -1,
}
INFO_LEVEL: Final = 9
OWNER_LEVEL: Final = 8  # the end of the connection that owns an exclusive queue


def level_of(message: Any, owner: Ref | None) -> int:
    """Return the level of a mail to a queue; ``owner`` is the connection that owns it, None = shared."""
    kind = type(message)
    if kind is Request:
        return INFO_LEVEL if type(message.payload) is queue_requests.Info else 0
    if kind is Down:
        return OWNER_LEVEL if message.ref is owner else 0
    return LEVELS.get(kind, 0)


SEE_ALL_MESSAGES: Final = frozenset(
    {
        queue_requests.Get,
        queue_requests.Stat,
        queue_requests.Purge,
        queue_requests.Delete,
        queue_requests.Info,
    }
)
"""Calls that wait while messages are being requeued."""
ANSWERS_OF_A_DELETED: Final[dict[type, Any]] = {
    queue_requests.Cancel: None,
    queue_requests.Leave: None,
    queue_requests.Delete: 0,
    queue_requests.Info: {},
}
"""What a deleted queue answers; all other calls get ``NotFound``."""
