"""The running broker as operators see it: its node, and what the process around the node knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

    from leveret.broker.connection.layers.certificate import Dates
    from leveret.broker.connection.layers.credentials import Credentials
    from leveret.broker.node.node import Node
    from leveret.core.addresses import Address
    from leveret.metadata.etcd.store import EtcdMetadata


class OwnProcess(Protocol):
    """The process, when it is a broker's own and no service's."""

    def stop(self) -> None:
        """Have it end in order."""

    def set_log_level(self, level: str) -> None:
        """Set the level of its log, until its settings are read again."""


class LinkCertificates(Protocol):
    """The certificates of the links with other nodes."""

    def dates(self) -> dict[Path, list[Dates]]:
        """Return from when to when the certificates of each file are valid, in seconds since 1970."""


class ClusterMember(Protocol):
    """The node as one of a cluster."""

    @property
    def metadata(self) -> EtcdMetadata:
        """What all nodes share."""

    @property
    def listening(self) -> str:
        """The address at which it listens for other nodes."""

    @property
    def certificates(self) -> LinkCertificates | None:
        """Those of its links; None: they are not encrypted."""


class RunningBroker(Protocol):
    """A broker that serves clients, or will as soon as its vhosts are up."""

    @property
    def node(self) -> Node:
        """Its node."""

    @property
    def node_id(self) -> uuid.UUID:
        """The name of the node for life, kept in its data directory."""

    @property
    def log_file(self) -> Path | None:
        """Where its log goes; None: to stderr, or to the log of a service."""

    @property
    def addresses(self) -> Sequence[Address]:
        """Where it listens for clients."""

    @property
    def credentials(self) -> Credentials | None:
        """The certificates of its listeners; None: no listener has TLS."""

    @property
    def process(self) -> OwnProcess | None:
        """Its process; None: a service's."""

    @property
    def cluster(self) -> ClusterMember | None:
        """The node as a member; None: a single node."""
