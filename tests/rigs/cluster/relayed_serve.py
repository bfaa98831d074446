"""``leveret serve`` of a node of a cluster that dials each other node by a relay of its own.

    LEVERET_RELAYS='{"b:1": "127.0.0.1:4711"}' python -P relayed_serve.py serve --cluster-advertise a:1 ...

A node tells all others one address, which here is a name: each of them knows its own relay to it; other addresses are
dialled as they are. With ``LEVERET_SLOWNESS=4`` all times after which a node gives up another, or etcd, are four times
as long.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

from leveret.actors.links import node
from leveret.actors.links.endpoint import Endpoint
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.transport import Sockets
from leveret.etcd.settings import EtcdSettings
from leveret.metadata.etcd.session_settings import SessionSettings
from leveret.server import cluster
from leveret.server.cli import main
from leveret.server.config import config

RELAYS: dict[str, str] = json.loads(os.environ.get("LEVERET_RELAYS", "{}"))
SLOWNESS = int(os.environ.get("LEVERET_SLOWNESS", "1"))
TIMES = {
    LinkLimits: ("heartbeat_s", "suspect_s", "handshake_s"),
    SessionSettings: ("renew_s", "valid_s", "suspect_s", "lease_s", "write_timeout_s"),
    EtcdSettings: ("timeout_s", "connect_timeout_s"),
}


class RelayedSockets(Sockets):
    """Sockets that find the names of nodes at relays."""

    def dial(self, address: str, endpoint: Endpoint) -> None:
        super().dial(RELAYS.get(address, address), endpoint)


def slow(settings: type[Any], *values: Any, **given: Any) -> Any:
    """Return settings with longer times than those that are given, or the default ones."""
    fields = settings.__dataclass_fields__
    times = {name: given.get(name, fields[name].default) * SLOWNESS for name in TIMES[settings]}
    return settings(*values, **given | times)


if __name__ == "__main__":
    node.Sockets = RelayedSockets  # type: ignore[misc]
    node.LinkLimits = partial(slow, LinkLimits)  # type: ignore[misc]
    cluster.SessionSettings = partial(slow, SessionSettings)  # type: ignore[misc]
    config.EtcdSettings = partial(slow, EtcdSettings)  # type: ignore[misc]
    sys.exit(main.main())
