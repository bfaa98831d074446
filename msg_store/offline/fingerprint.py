"""The fingerprint of an offline store: equal as long as nothing was written to it but corrections of its index.

A repair plan names the store that was audited by it. It is made of the uuid, the checkpoint of the index, and names and
lengths of segments and journals: each start of a broker, each flush and each compaction changes one of them.
"""

from __future__ import annotations

import hashlib

from leveret.msg_store.format.folder import StorePaths
from leveret.msg_store.format.rows import Checkpoint


def fingerprint(store: StorePaths, checkpoint: Checkpoint | None) -> str:
    """Return the fingerprint of a store that no process has open, in hex.

    Args:
        store: its files, as they are on the disk.
        checkpoint: of its index; None if the index cannot be used.
    """
    lines = [store.uuid.hex(), repr(checkpoint and tuple(checkpoint))]
    paths = [store.rdq_path(no) for no in store.rdq_nos()]
    paths += [store.journal_path(no) for no in store.journal_nos()]
    for path in paths:
        with store.files.open_read(path) as file:
            lines.append(f"{path.name} {file.size_bytes()}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
