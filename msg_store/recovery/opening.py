"""Opening a store: what blocks, before there is a loop to hold up."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leveret.core.files import Files
from leveret.msg_store.format.append_log import AppendLog, Reserve
from leveret.msg_store.format.file_header import Identity
from leveret.msg_store.format.folder import StoreFolder
from leveret.msg_store.format.journal_frames import DurablePosition
from leveret.msg_store.format.rows import IndexLocation
from leveret.msg_store.recovery.findings import Recovered
from leveret.msg_store.recovery.recovery import Recovery
from leveret.msg_store.wal import journal
from leveret.msg_store.wal import segment_writer as rdq_writer
from leveret.msg_store.wal.group_commit import GroupCommit


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that was recovered, and is open for writing."""

    folder: StoreFolder
    reserve: Reserve
    identity: Identity
    now_ms: Callable[[], int]
    recovered: Recovered
    core: GroupCommit
    rdq_log: AppendLog
    journal_log: AppendLog
    home: IndexLocation

    def close(self) -> None:
        """Let it go again; for who does not make a ``MsgStore`` of it."""
        self.rdq_log.close()
        self.journal_log.close()
        self.recovered.index.close()
        self.folder.close()


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Where a store lies and how large its files become.

    Attributes:
        files: the way to the disk.
        path: the folder; made if it is not there.
        reserve: the ballast of the data directory.
        now_ms: wall time.
        rdq_file_bytes: when a segment is full.
        journal_file_bytes: when a journal file is full.
        home: where the index lies; in the folder by default.
        new_uuid: makes the 16 bytes of a new store.
    """

    files: Files
    path: Path
    reserve: Reserve
    now_ms: Callable[[], int]
    rdq_file_bytes: int = rdq_writer.FILE_BYTES
    journal_file_bytes: int = journal.FILE_BYTES
    home: IndexLocation | None = None
    new_uuid: Callable[[], bytes] = lambda: os.urandom(16)


def open_store(
    where: StoreFiles, boot_epoch: int, trusted: DurablePosition | None = None
) -> Opened:
    """Lock a store and recover it. Takes as long as the journals are; call it beside the loop.

    Args:
        where: the store.
        boot_epoch: of this start of the broker, or of the store in it: above all before.
        trusted: after a failed sync, the ``mark`` of the group commit that failed.

    Raises:
        StoreLocked: another process has it.
        StoreError: it cannot be used as it is.
        OSError: the disk refuses.
    """
    folder = StoreFolder(where.files, where.path, where.new_uuid, where.now_ms)
    try:
        recovery = Recovery(
            folder,
            boot_epoch,
            where.reserve,
            where.now_ms,
            trusted,
            where.rdq_file_bytes,
            where.journal_file_bytes,
            where.home,
        )
        recovered, core = recovery.run()
    except BaseException:
        folder.close()
        raise
    return Opened(
        folder,
        where.reserve,
        Identity(folder.uuid, boot_epoch),
        where.now_ms,
        recovered,
        core,
        recovery.rdq_log,
        recovery.journal_log,
        recovery.home,
    )
