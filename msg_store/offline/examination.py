"""A store examined: what a start would find, and what an audit finds behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from leveret.msg_store.format.rows import IndexDamaged
from leveret.msg_store.offline.audit import Audit, Progress, audit
from leveret.msg_store.offline.inspection import Inspection
from leveret.msg_store.recovery.findings import Findings


@dataclass(frozen=True, slots=True)
class Examined:
    """Both, as long as the store is kept open for it."""

    store: Inspection
    audit: Audit

    @property
    def findings(self) -> Findings:
        """What a start would find."""
        return self.store.recovered.findings

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong that a crash alone does not do."""
        is_damaged = self.findings.is_damage or self.store.format_damage
        return self.audit.is_sound and not is_damaged


@contextmanager
def inspected(path: Path, index_damage: str = "") -> Iterator[Inspection]:
    """Open a store to look at it.

    Raises:
        StoreError, OSError: as ``Inspection``.
    """
    with TemporaryDirectory(prefix="leveret-store-") as scratch:
        store = Inspection(path, Path(scratch), index_damage)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def examined(path: Path, progress: Progress, index_damage: str = "") -> Iterator[Examined]:
    """Open a store and go over all of it.

    Args:
        path: its folder.
        progress: gets how far it is.
        index_damage: why the index is not to be believed, if there is a reason.

    Raises:
        StoreError, OSError: as ``Inspection``.
    """
    with ExitStack() as stack:
        store = stack.enter_context(inspected(path, index_damage))
        try:
            found = audit(store, progress)
        except IndexDamaged as error:
            if index_damage:
                raise
            stack.close()
            store = stack.enter_context(inspected(path, str(error)))
            found = audit(store, progress)
        yield Examined(store, found)
