"""Readers of an index in other processes: LMDB reuses no page that an open read transaction may see.

So the index grows as long as a reader is open, and an LMDB file never shrinks. The slot of a killed reader
is freed; a live one is logged, so that an operator can end it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

LAG_MAX: Final = 30  # transactions; there is one per checkpoint, so this is half a minute and more


class Readers:
    """Watches the readers of one environment."""

    def __init__(self, path: Path, env: Any) -> None:
        self._path = path
        self._env = env
        self._logged: set[tuple[str, str]] = set()

    def check(self) -> None:
        """Free the slots of killed readers; log readers that are open for too long, each once."""
        self._env.reader_check()
        last = self._env.info()["last_txnid"]
        late = set()
        for line in self._env.readers().splitlines()[1:]:
            process, _, transaction = line.split()
            if transaction != "-" and last - int(transaction) >= LAG_MAX:
                late.add((process, transaction))
        for process, transaction in late - self._logged:
            log.warning(
                "index grows as long as a reader is in it path=%s process=%s transactions=%d",
                self._path,
                process,
                last - int(transaction),
            )
        self._logged = late
