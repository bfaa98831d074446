"""A node: a runtime that is linked with others.

A node listens, dials, or both. An address that it dials it keeps dialling, with growing pauses, whenever there is no
link with the node there. Between two nodes there is one link. If both dial at the same time, the node with the lesser
name decides: it refuses the other's connection while its own is in the handshake. A link that is there is replaced by
a new connection only if the other side says that it has lost it. A node that has started again under its old name is
refused as long as the link with the old one seems to work, and so is another node of the same name.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from leveret.actors.links.endpoint import Endpoint
from leveret.actors.links.handshake import NONCE_BYTES, Claim, Handshake, Verdict
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.peer import SERVER, Peer
from leveret.actors.links.security import Security
from leveret.actors.links.server import NodeServer, WhereIs
from leveret.actors.links.transport import Sockets
from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.calls import Answer
from leveret.actors.runtime.ref import LOST_CELL, Ref
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.core.clock import TimerHandle

log = logger(__name__)

_DOUBLINGS_MAX: Final = 20
_LOST_MAX: Final = 10_000  # nodes that are remembered


class NodeUp(NamedTuple):
    """Mail: a node is linked.

    Attributes:
        name: of the node.
        incarnation: its number of the connection.
    """

    name: str
    incarnation: int


class NodeDown(NamedTuple):
    """Mail: the link with a node has broken; comes behind all that has come from it.

    Attributes:
        name: of the node.
        incarnation: as in ``NodeUp``.
        reason: what has happened, for people.
    """

    name: str
    incarnation: int
    reason: str


class Network(Protocol):
    """Connects nodes; real sockets, or simulated ones."""

    async def listen(self, address: str, accept: Callable[[], Endpoint]) -> str:
        """Listen; return the address with the port that was chosen."""

    def dial(self, address: str, endpoint: Endpoint) -> None:
        """Begin to connect; success or failure is reported to the endpoint."""

    async def close(self) -> None:
        """Listen and dial no more."""


class _Lost(NamedTuple):
    """The last link with a node that was lost."""

    node: str
    parted_at: int
    incarnation: int  # the other side's


class _Dial:
    """An address that is kept dialled."""

    __slots__ = ("address", "endpoint", "failures", "name", "timer")

    def __init__(self, address: str) -> None:
        self.address = address
        self.endpoint: Endpoint | None = None
        self.failures = 0
        self.name = ""  # of the node that was found there
        self.timer: TimerHandle | None = None


class Node:
    """The links of one runtime.

    Args:
        runtime: whose actors are linked; its ``name`` is the node's, and differs from that of other nodes.
        security: what nodes prove to each other.
        limits: bounds and times.
        network: how nodes are connected; by default by sockets.

    Attributes:
        runtime: as given.
        name: of the node.
        server: the actor that other nodes ask.
        limits: as given.
    """

    def __init__(
        self,
        runtime: Runtime,
        security: Security,
        limits: LinkLimits | None = None,
        network: Network | None = None,
    ) -> None:
        self.runtime = runtime
        self._security = security
        self.limits = limits or LinkLimits()
        self.name = runtime.node.rpartition("/")[0]
        self._handshake(is_dialler=False)  # raises now if the name cannot be a node's
        if network is None:
            if runtime.loop is None:
                raise ActorError("a node needs a runtime with an event loop")
            network = Sockets(runtime.loop, security, self.limits.handshake_s)
        self._network = network
        self.server: Ref = runtime.spawn(NodeServer, label=f"node:{self.name}")
        self._connections = 0
        self._peers: dict[str, Peer] = {}
        self._lost: dict[str, _Lost] = {}
        self._shaking: dict[
            Endpoint, None
        ] = {}  # endpoints that are in the handshake, oldest first
        self._endpoints: dict[Endpoint, Peer] = {}
        self._dials: dict[str, _Dial] = {}
        self._watchers: list[Ref] = []
        self._waiting: dict[str, list[asyncio.Future[Any]]] = {}
        self._is_closed = False

    # Connecting.

    async def listen(self, address: str) -> str:
        """Listen for other nodes.

        Args:
            address: ``HOST:PORT`` (port 0: any), or ``unix:PATH``.

        Returns:
            The address to dial.

        Raises:
            OSError: the address cannot be listened on.
            ConfigError: the address is malformed.
        """
        return await self._network.listen(address, partial(self._begin, is_dialler=False))

    def dial(self, address: str) -> None:
        """Keep linked with the node at an address, until ``hang_up``; ConfigError: the address is malformed."""
        if address not in self._dials:
            dial = self._dials[address] = _Dial(address)
            try:
                self._dial(dial)
            except BaseException:
                del self._dials[address]
                raise

    def hang_up(self, address: str) -> None:
        """Dial an address no more; a link that is there stays."""
        dial = self._dials.pop(address, None)
        if dial is not None and dial.timer is not None:
            dial.timer.cancel()

    def disconnect(self, name: str) -> None:
        """Break the link with a node, if there is one; an address that is dialled is dialled again."""
        peer = self._peers.get(name)
        if peer is not None:
            self.runtime.run_callback(peer.cut, "disconnected")

    async def connected(self, name: str, timeout_s: float | None = None) -> None:
        """Wait for the link with a node; TimeoutError: the link was not made in time."""
        if name in self._peers:
            return
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(name, [])
        waiting.append(future)
        try:
            await asyncio.wait_for(future, timeout_s)
        finally:
            waiting.remove(future)
            if not waiting:
                self._waiting.pop(name, None)

    async def close(self) -> None:
        """Break all links, and listen and dial no more."""
        self._is_closed = True
        for address in list(self._dials):
            self.hang_up(address)
        for endpoint in [*self._shaking, *self._endpoints]:
            endpoint.abort("this node is closed")
        await self._network.close()
        self.runtime.exit(self.server, "kill")

    # Actors.

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that are linked now."""
        return list(self._peers)

    def ref(self, node: str, number: int) -> Ref:
        """Return the address of an actor.

        Args:
            node: it runs on, ``name/creation``.
            number: of the actor there.

        Returns:
            The address; if there is no link with that node now, a dead one, whose reason is ``noconnection``.
        """
        return self.runtime.routes.ref(node, number)

    def unsent_bytes(self, name: str) -> int:
        """Return the bytes that wait in this node for another, 0 when it is not linked."""
        peer = self._peers.get(name)
        return 0 if peer is None else peer.connection.unsent_bytes

    def server_of(self, name: str) -> Ref:
        """Return the address of a node's server; it is dead if there is no link with the node."""
        if name == self.name:
            return self.server
        peer = self._peers.get(name)
        return ActorRef(f"{name}/0", SERVER, LOST_CELL) if peer is None else peer.ref(SERVER)

    async def whereis(self, name: str, node: str, timeout_s: float | None = 5.0) -> Ref | None:
        """Return the address of the actor of that name on a node; None: there is none.

        An actor asks itself: ``self.call(node.server_of("b"), WhereIs("name"), then)``.

        Raises:
            CallExit: there is no link with the node (``noconnection``), or it does not answer in time.
        """
        found: Ref | None = await self.runtime.call(self.server_of(node), WhereIs(name), timeout_s)
        return found

    def when_written(self, sender: Ref, to: Ref, message: Any) -> None:
        """As ``Runtime.when_written``."""
        self.runtime.when_written(sender, to, message)

    async def written(self, to: Ref) -> None:
        """As ``Runtime.written``."""
        await self.runtime.written(to)

    def watch_nodes(self, watcher: Ref) -> None:
        """Send an actor of this node a ``NodeUp`` or ``NodeDown`` at each change from now on, until it ends."""
        if watcher not in self._watchers:
            self._watchers.append(watcher)
            self.runtime.watch(watcher, lambda _: self._watchers.remove(watcher))

    def were_parted(self, own: int, node: str, number: int) -> bool:
        """Return whether two actors were there already when their nodes last lost each other.

        Both nodes give the same answer.

        Args:
            own: number of an actor of this node.
            node: of the other actor, ``name/creation``.
            number: of the other actor.
        """
        peer = self._peers.get(node.rpartition("/")[0])
        if peer is None or peer.node != node:
            return False
        return own <= peer.mine.parted_at and number <= peer.theirs.parted_at

    def is_past(self, node: str) -> bool:
        """Return whether the process of a node has ended, because another process is linked under its name.

        Args:
            node: ``name/creation``.
        """
        name = node.rpartition("/")[0]
        if name == self.name:
            return node != self.runtime.node
        peer = self._peers.get(name)
        return peer is not None and peer.node != node

    # Endpoints.

    def _begin(self, is_dialler: bool) -> Endpoint:
        if len(self._shaking) >= self.limits.handshakes_max:
            next(iter(self._shaking)).abort("too many handshakes are under way")
        endpoint = Endpoint(
            self.runtime,
            self,
            self._handshake(is_dialler),
            self.limits.handshake_s,
            is_dialler,
            self._security.needs_certified_names,
        )
        self._shaking[endpoint] = None
        if self._is_closed:
            endpoint.abort("this node is closed")
        return endpoint

    def _handshake(self, is_dialler: bool) -> Handshake:
        return Handshake(
            self.runtime.node,
            self._security.secret,
            secrets.token_bytes(NONCE_BYTES),
            is_dialler,
            partial(self._claim, is_dialler),
        )

    def _claim(self, is_dialler: bool, node: str, theirs: Claim | None) -> Claim:
        """Return this side's claim to a node; break the link with that node if the other side has lost it already."""
        name = node.rpartition("/")[0]
        verdict = Verdict.WELCOME
        old = self._peers.get(name)
        if old is not None:
            if old.node == node and theirs is not None and theirs.lost >= old.mine.incarnation:
                self.runtime.run_callback(old.cut, "the other side has lost the link")
            else:
                verdict = Verdict.DUPLICATE
                if old.node != node:
                    log.warning("name is taken node=%s by=%s", node, old.node)
        if not is_dialler and self.name < name and self._is_dialling(node):
            verdict = Verdict.DUPLICATE
        lost = self._lost.get(name)
        if lost is None or lost.node != node:
            lost = _Lost(node, 0, 0)
        self._connections += 1
        return Claim(self._connections, lost.parted_at, lost.incarnation, verdict)

    def _is_dialling(self, node: str) -> bool:
        return any(each.is_dialler and each.handshake.peer == node for each in self._shaking)

    def made(self, endpoint: Endpoint, handshake: Handshake) -> Peer | None:
        self._shaking.pop(endpoint, None)
        mine, theirs = handshake.my_claim, handshake.their_claim
        assert mine is not None and theirs is not None and endpoint.wire is not None  # noqa: PT018
        node = handshake.peer
        name = node.rpartition("/")[0]
        if name in self._peers:
            return None
        peer = Peer(self.runtime, node, mine, theirs, self.limits, self, endpoint.wire)
        self._peers[name] = self._endpoints[endpoint] = peer
        self.runtime.routes.add(node, peer)
        self._note_dial(endpoint)
        log.info("node is up name=%s incarnation=%d", node, theirs.incarnation)
        self._tell(NodeUp(name, theirs.incarnation))
        for future in self._waiting.get(name, ()):
            Answer(future).give(None)
        return peer

    def down(self, peer: Peer, reason: str) -> None:
        if self._peers.get(peer.name) is peer:
            del self._peers[peer.name]
        self.runtime.routes.remove(peer.node, peer)
        self._lost.pop(peer.name, None)
        self._lost[peer.name] = _Lost(peer.node, self.runtime.last_number, peer.theirs.incarnation)
        if len(self._lost) > _LOST_MAX:
            del self._lost[next(iter(self._lost))]
        log.info("node is down name=%s reason=%s", peer.node, reason)
        self._tell(NodeDown(peer.name, peer.theirs.incarnation, reason))
        for dial in self._dials.values():
            if dial.name == peer.name and dial.timer is not None:
                dial.timer.cancel()
                dial.timer, dial.failures = None, 0
                self._redial(dial, reason)

    def ended(self, endpoint: Endpoint, reason: str) -> None:
        self._note_dial(endpoint)
        self._shaking.pop(endpoint, None)
        self._endpoints.pop(endpoint, None)
        for dial in self._dials.values():
            if dial.endpoint is endpoint:
                dial.endpoint = None
                self._redial(dial, reason)

    def _tell(self, mail: NodeUp | NodeDown) -> None:
        for watcher in self._watchers:
            self.runtime.send(watcher, mail, self.server)

    # Dialling.

    def _note_dial(self, endpoint: Endpoint) -> None:
        """Note which node was found at an address, if it has proved who it is."""
        if endpoint.handshake.their_claim is not None:
            for dial in self._dials.values():
                if dial.endpoint is endpoint:
                    dial.name = endpoint.handshake.peer.rpartition("/")[0]
                    if endpoint in self._endpoints:
                        dial.failures = 0

    def _dial(self, dial: _Dial) -> None:
        dial.timer = None
        if dial.name in self._peers:  # the node there has dialled this one
            self._redial(dial, "")
            return
        endpoint = dial.endpoint = self._begin(is_dialler=True)
        try:
            self._network.dial(dial.address, endpoint)
        except BaseException:
            dial.endpoint = None
            endpoint.abort("not dialled")
            raise

    def _redial(self, dial: _Dial, reason: str) -> None:
        """Try again after a pause; a link that is there is looked at as often as that."""
        if self._is_closed or dial.timer is not None or dial.endpoint is not None:
            return
        if reason and not dial.failures:
            log.info("node will be dialled again address=%s reason=%s", dial.address, reason)
        limits = self.limits
        pause_s = min(
            limits.redial_max_s, limits.redial_s * 2 ** min(dial.failures, _DOUBLINGS_MAX)
        )
        dial.failures += 1
        dial.timer = self.runtime.clock.call_later(pause_s, self._dial, dial)
