"""Detection of network file systems, on which a store must not lie.

Stores map files into memory and lock them, which works between the processes of one machine. On a
network file system another machine may see old pages and get the same lock, and synced data may
not be durable.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

NETWORK: Final = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|afs|coda|ncpfs|ceph|lustre|glusterfs|davfs"
    r"|fuse\.(ceph|ceph-fuse|glusterfs|sshfs|s3fs|gcsfuse|goofys|rclone|davfs2?|juicefs)"
)

_MOUNTS: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the network file system that a path lies on; None if it lies on none.

    The path need not exist. Without a mount table (macOS) None is returned.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return None
    kind, longest = "", -1
    resolved = path.resolve()
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, about = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        place = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        # Of two mounts on one folder the later one counts.
        if resolved.is_relative_to(place) and len(place.parts) >= longest:
            kind, longest = about[0], len(place.parts)
    return kind if NETWORK.fullmatch(kind) else None
