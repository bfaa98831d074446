"""Network file systems are told from disks by what the machine says is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.core.system.mounts import network_file_system

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,relatime - proc proc rw
30 22 0:40 / /srv/nfs rw,relatime shared:9 - nfs4 server:/export rw,vers=4.2
31 30 254:1 / /srv/nfs/local rw,relatime - xfs /dev/vdb rw
32 22 0:41 / /mnt/with\040space rw,relatime - cifs //server/share rw
33 22 0:42 / /over rw - nfs server:/a rw
34 33 254:2 / /over rw - ext4 /dev/vdc rw
35 22 0:43 / /mnt/ssh rw - fuse.sshfs host:/ rw
36 22 0:44 / /mnt/pass rw - fuse.bindfs /x rw
37 22 0:45 / /mnt/9p rw - 9p drive rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/leveret", None),
        ("/srv/nfs", "nfs4"),
        ("/srv/nfs/deep/folder", "nfs4"),
        ("/srv/nfsx", None),
        ("/srv/nfs/local/data", None),
        ("/mnt/with space/data", "cifs"),
        ("/over/data", None),
        ("/mnt/ssh/data", "fuse.sshfs"),
        ("/mnt/pass/data", None),
        ("/mnt/9p/data", None),
    ],
)
def test_the_mount_that_a_path_lies_on_counts(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


def test_a_link_counts_where_it_leads_to(tmp_path: Path) -> None:
    mounts = MOUNTS + f"40 22 0:46 / {tmp_path}/share rw - nfs server:/b rw\n"
    (tmp_path / "share").mkdir()
    (tmp_path / "link").symlink_to("share")

    assert network_file_system(tmp_path / "link" / "data", mounts) == "nfs"


def test_lines_that_say_nothing_are_passed_over() -> None:
    assert network_file_system(Path("/data"), "\n1 2 3\nx - \n" + MOUNTS) is None


def test_this_machine_can_be_asked() -> None:
    assert network_file_system(Path("/proc")) is None
