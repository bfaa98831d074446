"""``leveret serve`` in which everything rare is frequent, as in ``broker_worker``.

    python -P frequent_serve.py serve ...

Orphans are kept for a week, and a message of some queues is stored once, as ever.
"""

from __future__ import annotations

import sys

from leveret.broker.channel.publishing import publish
from leveret.broker.node import orphans
from leveret.server.cli import main
from rigs.broker_worker import make_all_rare_things_frequent

if __name__ == "__main__":
    due, queues, wide = orphans.due, publish.FAN_OUT_QUEUES, publish.WIDE_QUEUES
    make_all_rare_things_frequent()
    orphans.due, publish.FAN_OUT_QUEUES, publish.WIDE_QUEUES = due, queues, wide  # type: ignore[misc]
    sys.exit(main.main())
