"""Boot epochs: numbers of starts, from which message stores number their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.broker.vhost.metadata_writer import MetadataWriter


class BootEpochs:
    """Gives each opening of a message store an epoch that it was never opened with.

    Attributes:
        current: how often a broker was started on this metadata store, or a vhost's messages recovered.
    """

    def __init__(self, metadata: MetadataWriter) -> None:
        self._metadata = metadata
        self._last: dict[str, int] = {}  # by vhost
        self.current = 0

    def begin(self) -> None:
        """Count a start.

        Raises:
            StoreError: the metadata store cannot be written.
        """
        self.current = self._metadata.store.next_boot_epoch()

    def of_store(self, vhost_name: str) -> int:
        """Return a boot epoch that the vhost's message store has not been opened with."""
        if self._last.get(vhost_name) == self.current:
            self.begin()
        self._last[vhost_name] = self.current
        return self.current
