"""How the work of routing is counted, so that one message cannot hold up everybody.

The unit is about 0.1 us: one trie node, binding or target that is visited. ``match`` answers cheap keys at
once and returns the work done. For others ``walk``, a generator, does it in steps of about ``WALK_STEP_WORK``, so that
the caller can go on in a later turn. Clients may change the bindings in between. A walk finds
every binding that is there from its beginning to its end; of those that come or go meanwhile it may find
any. This holds because each slice reads the index as it is then, and no walk keeps an iterator of an index
over a ``yield``.
"""

from __future__ import annotations

import sys
from typing import Final

NEEDS_WALK: Final = -1  # instead of the work of a match: it takes a walk
FEW_KEYS: Final = 8  # of a message, that a match looks up at once
WALK_STEP_WORK: Final = 2_000  # work between two yields of a walk
EXCHANGE_WORK: Final = 10  # to visit an exchange
UNLIMITED: Final = sys.maxsize
