"""The server of a node: the actor that other nodes ask, and that exists on every node under the same number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.sendable import message


@message
@dataclass(frozen=True, slots=True)
class WhereIs:
    """Answered with the address of the actor of that name on the node; None: there is none."""

    name: str


class NodeServer(GenServer):
    """Answers what other nodes ask."""

    trap_exits = True

    def handle_call(self, request: Any, frm: From | None) -> Any:
        if isinstance(request, WhereIs):
            return self.runtime.whereis(request.name)
        return super().handle_call(request, frm)

    def handle_cast(self, message: Any) -> None:
        """Ignore what it does not know: another version may tell more, and a stray mail must not end it."""

    def handle_info(self, message: Any) -> None:
        """Outlive actors that were linked with it."""
