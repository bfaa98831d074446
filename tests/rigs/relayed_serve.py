"""``leveret serve`` of a node of a cluster that dials each other node by a relay of its own.

    LEVERET_RELAYS='{"b:1": "127.0.0.1:4711"}' python -P relayed_serve.py serve --cluster-advertise a:1 ...

A node tells all others one address, which here is a name: each of them knows its own relay to it.
"""

from __future__ import annotations

import json
import os
import sys

from leveret.actors.links import node
from leveret.actors.links.endpoint import Endpoint
from leveret.actors.links.transport import Sockets
from leveret.server.cli import main

RELAYS: dict[str, str] = json.loads(os.environ.get("LEVERET_RELAYS", "{}"))


class RelayedSockets(Sockets):
    """Sockets that find the names of nodes at relays."""

    def dial(self, address: str, endpoint: Endpoint) -> None:
        super().dial(RELAYS[address], endpoint)


if __name__ == "__main__":
    node.Sockets = RelayedSockets  # type: ignore[misc]
    sys.exit(main.main())
