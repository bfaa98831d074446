"""What all files of one run of a store have in common."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.msg_store.format.checksum import PREFERRED, Extend, extender, seed_of
from leveret.msg_store.format.file_header import EPOCH_SHIFT, FileHeader


@dataclass(frozen=True, slots=True)
class Identity:
    """The store's uuid, the start of the broker, and the kind of checksums it writes."""

    uuid: bytes
    boot_epoch: int
    crc_kind: int = PREFERRED

    @property
    def extend(self) -> Extend:
        """The checksum function."""
        return extender(self.crc_kind)

    @property
    def seed(self) -> int:
        """Where checksums start."""
        return seed_of(self.uuid)

    @property
    def first_no(self) -> int:
        """The lowest number of messages, and of seqs after a crash, of this run."""
        return self.boot_epoch << EPOCH_SHIFT

    def header(
        self, magic: bytes, number: int, now_ms: int, first_lsn: int = 0, flags: int = 0
    ) -> bytes:
        """Return the first bytes of a file."""
        header = FileHeader(
            magic, number, self.uuid, now_ms, self.boot_epoch, self.crc_kind, first_lsn, flags
        )
        return header.encode()
