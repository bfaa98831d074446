"""Readers of an index in other processes: as long as one reads, no page that it might see is used again.

The index grows meanwhile, and an LMDB file never becomes smaller. A reader that was killed is taken off
its slot; one that is alive can only be named, so that an operator ends it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

LAG_MAX: Final = 30  # transactions; there is one per checkpoint, so this is half a minute and more


class Readers:
    """Watches the readers of one environment.

    Args:
        path: its folder, for the log.
        env: the environment.
    """

    def __init__(self, path: Path, env: Any) -> None:
        self._path = path
        self._env = env
        self._named: set[tuple[str, str]] = set()

    def check(self) -> None:
        """Free the slots of those that were killed; name those that have read for too long, once."""
        self._env.reader_check()
        last = self._env.info()["last_txnid"]
        late = set()
        for line in self._env.readers().splitlines()[1:]:
            process, _, transaction = line.split()
            if transaction != "-" and last - int(transaction) >= LAG_MAX:
                late.add((process, transaction))
        for process, transaction in late - self._named:
            log.warning(
                "index grows as long as a reader is in it path=%s process=%s transactions=%d",
                self._path,
                process,
                last - int(transaction),
            )
        self._named = late
