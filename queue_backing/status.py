"""What a queue keeps per message: an exact tuple, its layout, and what to call its positions.

An *entry* is ``(seq, message, expiry_ms, persistent)``:

=====  ==============  =============================================================================
index  name            meaning
=====  ==============  =============================================================================
0      ``SEQ``         position in this queue: unique, growing, kept across requeue; the ack tag too
1      ``MESSAGE``     ``core.message.Message``; None when the content is not in RAM
2      ``EXPIRY_MS``   when it expires, ms since 1970; 0 = never
3      ``PERSISTENT``  effective persistence: the queue is durable and delivery-mode is 2
=====  ==============  =============================================================================

A backing that pages to disk appends positions (where the content lies, whether the index entry has
been issued, its size); these four stay, and nobody outside the backing looks further.

Entries are exact tuples of ints, bools and a tuple of bytes, so that the garbage collector forgets
them within two young passes (``docs/decisions/0003-messages-are-tuples.md``). A change of state is
another tuple or another container, never a mutable record. *Redelivered* is not stored: an entry was
handed out before if and only if its ``seq`` lies below the queue's ``next_deliver`` watermark, for
first deliveries are made in the order of ``seq`` and a requeue keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, TypeAlias

from leveret.core.message import BODY, Message

# ``tuple[int, Message | None, int, bool, ...]``; a longer tuple cannot be spelt for mypy.
Entry: TypeAlias = tuple[Any, ...]

SEQ: Final = 0
MESSAGE: Final = 1
EXPIRY_MS: Final = 2
PERSISTENT: Final = 3

NEVER_MS: Final = 0

seq_of: Final[Callable[[Entry], int]] = itemgetter(SEQ)
message_of: Final[Callable[[Entry], Message]] = itemgetter(MESSAGE)
body_of: Final[Callable[[Message], bytes]] = itemgetter(BODY)
