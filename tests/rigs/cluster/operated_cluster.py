"""The administration of brokers that are one cluster over sockets (``socket_cluster``)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leveret.broker.connection.layers.credentials import Credentials
from leveret.core.addresses import Address
from leveret.management.node_admin import NodeAdmin
from leveret.management.operator_server import OperatorServer
from leveret.management.verb_table import Verb, VerbTable
from leveret.metadata.tables import MemberRow
from leveret.server.process import OwnProcess
from rigs.cluster.socket_cluster import SocketBroker


@dataclass
class Serving:
    """What the metadata of a cluster tells of nodes."""

    addresses: dict[str, str]
    is_live: bool = True
    trouble: str = ""


@dataclass
class Member:
    """A node's part in the cluster."""

    metadata: Serving
    listening: str = "127.0.0.1:25672"


@dataclass
class Operated:
    """A broker as its administration sees it."""

    broker: SocketBroker
    cluster: Any
    node_id: uuid.UUID = field(default_factory=uuid.uuid4)
    log_file: Path | None = None
    addresses: list[Address] = field(default_factory=list)
    credentials: Credentials | None = None
    process: OwnProcess | None = None

    def __post_init__(self) -> None:
        self.node = self.broker.node


class Operators:
    """The administration of all brokers.

    Attributes:
        serving: what each node hears of the others, by node.
        admins: of the nodes.
        servers: the actors that answer other nodes.
    """

    def __init__(self, brokers: dict[str, SocketBroker]) -> None:
        self.serving = {
            name: Serving({other: f"{other}:1" for other in brokers if other != name})
            for name in brokers
        }
        self.admins = {
            name: NodeAdmin(Operated(broker, Member(self.serving[name])))
            for name, broker in brokers.items()
        }
        self.servers = {
            name: brokers[name].runtime.spawn(OperatorServer, admin.node_verbs())
            for name, admin in self.admins.items()
        }
        for broker in brokers.values():
            for name in brokers:
                broker.node.settings_rows.put(MemberRow(f"uuid of {name}", name))

    def verbs(self, name: str) -> dict[str, Verb]:
        return self.admins[name].control_verbs()

    async def ask(self, name: str, verb: str, /, **arguments: Any) -> tuple[Any, list[str]]:
        """Have a node carry out a verb for an operator; return the value, or the refusal, and the warnings."""
        answer = await VerbTable(self.verbs(name)).answer(verb, arguments)
        if "refused" in answer or "failed" in answer:
            return answer.get("refused") or answer["failed"], []
        found = answer["ok"]
        if hasattr(found, "__aiter__"):
            found = [row async for row in found]
        return found, answer.get("warnings", [])

    def lost(self, name: str) -> None:
        """The key of a node is gone."""
        for serving in self.serving.values():
            serving.addresses.pop(name, None)
