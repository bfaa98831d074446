"""Entries: a queue's record of a message, an exact tuple, and the names of its states.

An *entry* is ``(seq, message, expiry_ms, persistent, msg_no, size, index_on_disk, content_on_disk)``:

=====  ===================  ========================================================================
index  name                 meaning
=====  ===================  ========================================================================
0      ``SEQ``              position in this queue: unique, growing, kept across requeue; the ack tag
1      ``MESSAGE``          ``core.message.Message``; None when the content is not in RAM
2      ``EXPIRY_MS``        when it expires, ms since 1970; 0 = never
3      ``PERSISTENT``       effective persistence: the queue is durable and delivery-mode is 2
4      ``MSG_NO``           u64 name of the content, the same in all queues of one publish; the channel
                            takes it at routing, consecutive within a batch
5      ``SIZE``             bytes of the body, known also when the content is not in RAM
6      ``INDEX_ON_DISK``    the position has been issued to the queue's index
7      ``CONTENT_ON_DISK``  the content has been issued to a store; implied by ``INDEX_ON_DISK``
=====  ===================  ========================================================================

An amqqueue reads only the first four. The store knows the layout too: its kernel makes entries of rows
(``msg_store.format.kernel``), and the transient store pages entries out (``msg_store.transient.segment``).

An entry shows its state: an *alpha* has a message; a *beta* has none and no ``INDEX_ON_DISK``; a *gamma* has
none but ``INDEX_ON_DISK``; a *delta* has no entry at all. "On disk" means issued: whether it is synced
matters for confirms only, which the store counts.

Entries are exact tuples of ints, bools and a tuple of bytes, so that the garbage collector forgets
them within two young passes (``docs/decisions/0003-messages-are-tuples.md``). A change of state is
another tuple or another container, never a mutable record. *Redelivered* is not stored: an entry was
handed out before if and only if its ``seq`` lies below the queue's ``next_deliver`` watermark, for
first deliveries are made in the order of ``seq`` and a requeue keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final, TypeAlias

from leveret.core.message import BODY, Message

# ``tuple[int, Message | None, int, bool, ...]``; a longer tuple cannot be spelt for mypy.
Entry: TypeAlias = tuple[Any, ...]

SEQ: Final = 0
MESSAGE: Final = 1
EXPIRY_MS: Final = 2
PERSISTENT: Final = 3
MSG_NO: Final = 4
SIZE: Final = 5
INDEX_ON_DISK: Final = 6
CONTENT_ON_DISK: Final = 7

NEVER_MS: Final = 0

seq_of: Final[Callable[[Entry], int]] = itemgetter(SEQ)
message_of: Final[Callable[[Entry], Message]] = itemgetter(MESSAGE)
size_of: Final[Callable[[Entry], int]] = itemgetter(SIZE)
body_of: Final[Callable[[Message], bytes]] = itemgetter(BODY)


def trimmed(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries without their contents, which are on disk."""
    return [(s, None, x, p, n, z, i, True) for s, _, x, p, n, z, i, _ in entries]


def with_messages(entries: Iterable[Entry], messages: Iterable[Message | None]) -> list[Entry]:
    """Return the entries with these contents, None where one is not in RAM."""
    return [
        (s, m, x, p, n, z, i, c)
        for (s, _, x, p, n, z, i, c), m in zip(entries, messages, strict=True)
    ]
