"""This node's part in its cluster: its links, the metadata that it shares, and whom it dials.

Nothing but etcd has to be configured: each node says in its key there where it is dialled, and dials all others that
serve. Of two nodes that dial each other one connection stays (``actors.links``). Links are encrypted if there are
certificates for them. The names of cluster and node are noted in the data directory, whose message stores make sense
with that metadata only.

Who has joined is a member until an operator has the cluster forget it (``management.verbs.membership``): its name is
taken while it is down, since its queues would seem empty on another data directory. A directory that was forgotten may
not join again: its queues are gone for the others, and their names may have been declared anew.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from leveret.actors.links.node import Node as LinkedNode
from leveret.actors.links.security import Security
from leveret.broker.cluster.cluster_rows import ClusterRows
from leveret.broker.connection.layers.credentials import CHECK_S
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.metadata.etcd.store import EtcdMetadata
from leveret.metadata.tables import MemberRow, VhostRow
from leveret.server.link_certificates import LinkCertificates
from leveret.server.process import CLUSTER, AddressUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.node.node import Node
    from leveret.server.config.config import Config
    from leveret.server.process import DataDirectory

log = logger(__name__)

SECRET: Final = "LEVERET_CLUSTER_SECRET"
PREFIX: Final = "/leveret"
LINKED_WITHIN_S: Final = 15.0
LEAVE_S: Final = 2.0
_POLL_S: Final = 0.02


class ClusterMember:
    """One node of a cluster; ``join`` makes it.

    Attributes:
        links: with the other nodes.
        metadata: that all nodes share.
        listening: where this node listens for others.
        certificates: of the links; None: they are not encrypted.
        own: this node among the members.
    """

    own: MemberRow

    def __init__(
        self,
        links: LinkedNode,
        metadata: EtcdMetadata,
        listening: str,
        certificates: LinkCertificates | None,
    ) -> None:
        self.links = links
        self.metadata = metadata
        self.listening = listening
        self.certificates = certificates
        self._checking: asyncio.Task[None] | None = None
        if certificates is not None:
            self._checking = asyncio.create_task(_check_certificates(certificates))
        self._dialled: dict[str, str] = {}
        metadata.watch_nodes(self._dial)
        self._dial()

    @classmethod
    async def join(cls, config: Config, runtime: Runtime, directory: DataDirectory) -> Self:
        """Listen for other nodes, join the cluster, and begin to dial them.

        Raises:
            ConfigError: the secret or a certificate cannot be used, another node has the name, or etcd has no
                metadata for the messages in the data directory.
            AddressUnavailableError: the address for other nodes cannot be bound.
            StoreError: etcd is not available.
        """
        security = Security(_secret(config.cluster_secret_file))
        certificates = None
        if config.cluster_tls_cert_file is not None:
            certificates = LinkCertificates(config)
            security = replace(
                security, listener_tls=certificates.listener, dialler_tls=certificates.dialler
            )
        links = LinkedNode(runtime, security)
        try:
            listening = await links.listen(config.cluster_listen)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"cannot listen for other nodes on {config.cluster_listen}: {reason}; choose another with --cluster-listen HOST:PORT"
            raise AddressUnavailableError(text) from error
        try:
            metadata = await EtcdMetadata.open(
                config.etcd(),
                config.cluster_node,
                str(directory.node_id),
                SessionSettings(
                    prefix=f"{PREFIX}/{config.cluster}",
                    valid_s=config.cluster_valid_s,
                    suspect_s=config.cluster_valid_s / 2,
                    lease_s=config.cluster_lease_s,
                ),
                address=config.cluster_advertise or listening,
                directory=directory.place,
            )
        except BaseException:
            await links.close()
            raise
        member = cls(links, metadata, listening, certificates)
        own = member.own = MemberRow(str(directory.node_id), config.cluster_node)
        members = metadata.table(MemberRow)
        refusal = refusal_of(own, config.cluster, members)
        if directory.is_old_cluster_node and own.uuid not in {each.uuid for each in members}:
            refusal = refusal or _unknown(config.cluster, directory.path)
        elif directory.has_messages and not metadata.table(VhostRow):
            refusal = refusal or _empty(config.cluster, directory.path)
        if refusal:
            await member.leave()
            raise ConfigError(refusal)
        return member

    async def enlist(self, node: Node) -> None:
        """Have this node among the members; StoreError: that cannot be written."""
        if self.metadata.find(self.own) is None:
            await node.metadata.write([self.own])
        node.settings_rows.put(self.own)

    def serve(self, node: Node, locator: str) -> ClusterRows:
        """Have rows that change applied to a node, from its ``begin`` on.

        Args:
            node: that this is.
            locator: of new queues.
        """
        assert node.cluster_nodes is not None
        node.cluster_nodes.default_locator = locator
        rows = ClusterRows(node, self.metadata)
        self.metadata.listener = rows
        return rows

    async def linked(self, node: Node) -> None:
        """Wait until the queues of all nodes that serve are known, at most ``LINKED_WITHIN_S``."""
        assert node.cluster_nodes is not None
        deadline_s = asyncio.get_running_loop().time() + LINKED_WITHIN_S
        while missing := [
            name for name in self.metadata.addresses if not node.cluster_nodes.home(name).is_up
        ]:
            if asyncio.get_running_loop().time() > deadline_s:
                log.warning("nodes are not linked, their queues are down nodes=%s", missing)
                return
            await asyncio.sleep(_POLL_S)

    async def leave(self) -> None:
        """Leave in order: the other nodes need not wait for this one any more."""
        self.metadata.watch_nodes(_ignored)
        self.metadata.listener = None
        if self._checking is not None:
            self._checking.cancel()
        await self.links.close()
        await self.metadata.leave(LEAVE_S)

    def _dial(self) -> None:
        """Dial new nodes, and stop dialling nodes that have gone."""
        wanted = self.metadata.addresses
        for name, address in list(self._dialled.items()):
            if wanted.get(name) != address:
                self.links.hang_up(address)
                del self._dialled[name]
        for name, address in wanted.items():
            if name in self._dialled:
                continue
            self._dialled[name] = address
            try:
                self.links.dial(address)
            except ConfigError as error:
                log.error(
                    "node cannot be dialled node=%s address=%s error=%s", name, address, error
                )


def refusal_of(own: MemberRow, cluster: str, members: Sequence[MemberRow]) -> str:
    """Return why a node may not join; "": it may."""
    for member in members:
        if member.uuid == own.uuid and member.is_forgotten:
            return (
                f"cluster {cluster} has forgotten the node of this data directory (forget_cluster_node): its queues are "
                "gone there; start the node with a new data directory, as a new one"
            )
        if member.node == own.node and member.uuid != own.uuid and not member.is_forgotten:
            return (
                f"node {own.node} of cluster {cluster} is another one, of the data directory {member.uuid}: give this one "
                f"a name of its own; if that directory is lost, run leveret ctl forget_cluster_node {own.node} on "
                "another node before"
            )
    return ""


def _unknown(cluster: str, data_dir: Path) -> str:
    return (
        f"cluster {cluster} does not know the node of {data_dir}, which was one of it and has messages: its etcd is another "
        "one, or was restored from a backup that is older than the node. Restore the newest backup of etcd, or start with a "
        f"new --data directory; to join with these messages, which the queues there do not know, remove {data_dir / CLUSTER}"
    )


def _empty(cluster: str, data_dir: Path) -> str:
    return (
        f"etcd has no definitions under {PREFIX}/{cluster}, and {data_dir} has messages: restore etcd, or move the "
        "definitions of a single node there (leveret metadata to-etcd); or start with a new --data directory"
    )


async def _check_certificates(certificates: LinkCertificates) -> None:
    while True:
        await asyncio.sleep(CHECK_S)
        certificates.reload_if_changed()


def _secret(file: Path | None) -> bytes:
    if file is None:
        found = os.environ.get(SECRET, "").encode("utf-8", "surrogateescape")
        if not found:
            raise ConfigError(
                f"a cluster needs a secret: set cluster_secret_file, or {SECRET} in the environment"
            )
        return found
    try:
        return file.read_bytes().strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"secret of the cluster: {file} cannot be read: {reason}") from error


def _ignored() -> None:
    """The node leaves, and dials nobody any more."""
