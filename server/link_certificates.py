"""The certificates of the links between the nodes of a cluster.

Both sides of a link show a certificate of an authority in ``cluster.tls_ca_file``, and the side that dials checks that
the other's is for the host that it has dialled. So a certificate is used on both sides. TLS 1.3 is the only version:
all nodes are Leveret's.

The files are read again when they have changed, as those of listeners are (``broker.connection.layers.credentials``).
They are loaded into the contexts that are in use: OpenSSL shows the new certificate in handshakes from then on. It
cannot take back an authority, so one that is left out of the file is trusted until the node is started again.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.broker.connection.layers.certificate import Dates, dates_in
from leveret.broker.connection.layers.credentials import FileChanges, load_authorities, load_chain
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.server.config.config import Config

log = logger(__name__)


class LinkCertificates:
    """Makes the contexts of TLS for the links of a node.

    Args:
        config: its settings that begin with ``cluster_tls_``.

    Attributes:
        listener: for nodes that dial this one.
        dialler: for nodes that this one dials.

    Raises:
        ConfigError: a file cannot be used; the text names it.
    """

    def __init__(self, config: Config) -> None:
        assert config.cluster_tls_cert_file is not None
        assert config.cluster_tls_ca_file is not None
        self._cert = config.cluster_tls_cert_file
        self._key = config.cluster_tls_key_file
        self._authorities = config.cluster_tls_ca_file
        self._password = config.cluster_tls_key_password
        files = [self._cert, self._authorities]
        self._changes = FileChanges(files if self._key is None else [*files, self._key])
        self.listener = _context(ssl.PROTOCOL_TLS_SERVER)
        self.listener.num_tickets = 0  # each link is verified
        self.dialler = _context(ssl.PROTOCOL_TLS_CLIENT)
        for context in (self.listener, self.dialler):
            self._load(context)

    def reload(self) -> bool:
        """Read the files again; return whether they could be used."""
        self._changes.note()
        try:
            self._load(_context(ssl.PROTOCOL_TLS_SERVER))  # in use are only those that fit
            for context in (self.listener, self.dialler):
                self._load(context)
        except (ConfigError, OSError) as error:  # a file that goes away between two checks
            log.error("certificates of links not reloaded, the former ones stay error=%s", error)
            return False
        log.info("certificates of links reloaded file=%s", self._cert)
        return True

    def reload_if_changed(self) -> None:
        """Read the files again if they have changed, but not since the last call."""
        if self._changes.have_settled():
            self.reload()

    def dates(self) -> dict[Path, list[Dates]]:
        """Return the dates of all certificates in the files, as they are now.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file holds no certificate, or a damaged one.
        """
        return {file: dates_in(file) for file in (self._cert, self._authorities)}

    def _load(self, context: ssl.SSLContext) -> None:
        load_authorities(context, self._authorities)
        load_chain(context, self._cert, self._key, self._password, "cluster_tls_key_password")


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    return context
