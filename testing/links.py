"""A simulated network for the links between nodes, in virtual time.

Bytes arrive in order, late, and cut anywhere. A connection may be reset, which both sides hear of at different times
and which loses what is under way; or *silenced*, so that nothing arrives and nobody is told, in one direction or both,
until it is healed: then everything arrives, as TCP sends it again.
A slow reader takes so many bytes per second. ::

    network = SimulatedNetwork(clock, random)
    node = Node(runtime, security, network=network.port("a"))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.actors.links.codec import Buffer
    from leveret.actors.links.transport import Listener
    from leveret.core.clock import Clock

_FULL_BYTES: Final = 256 * 1024
_PIECES_MAX: Final = 4  # into which a write is cut


class SimulatedWire:
    """One end of a connection."""

    def __init__(self, connection: _Connection, endpoint: Listener) -> None:
        self._connection = connection
        self.endpoint = endpoint
        self.other: SimulatedWire | None = None
        self.is_over = False
        self.under_way_bytes = 0
        self.pieces: deque[bytes] = deque()
        self.held: list[tuple[Callable[..., None], tuple[SimulatedWire, SimulatedWire]]] = []
        self.free_s = 0.0  # when all that was written has arrived

    @property
    def is_full(self) -> bool:
        return self.under_way_bytes > _FULL_BYTES

    def write(self, data: list[Buffer]) -> None:
        if not self.is_over:
            self._connection.carry(self, b"".join(data))

    def abort(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._connection.end(self)
            self._connection.soon(self.endpoint.ended, "aborted")

    def close(self) -> None:
        """End the connection; what is under way arrives."""
        self.abort()

    def arrived(self, data: bytes) -> None:
        """Count bytes that are not under way any more."""
        was_full = self.is_full
        self.under_way_bytes -= len(data)
        if was_full and not self.is_full and not self.is_over:
            self.endpoint.writable()


class _Connection:
    """Two wires."""

    def __init__(self, network: SimulatedNetwork, names: tuple[str, str]) -> None:
        self._network = network
        self.names = names
        self.wires: list[SimulatedWire] = []

    def carry(self, wire: SimulatedWire, data: bytes) -> None:
        network, other = self._network, wire.other
        assert other is not None
        cuts = sorted(network.random.randrange(len(data) + 1) for _ in range(_PIECES_MAX - 1))
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if begin < end:
                piece = data[begin:end]
                wire.under_way_bytes += len(piece)
                wire.free_s = max(wire.free_s + len(piece) / network.bytes_per_s, network.due_s())
                wire.pieces.append(piece)
                network.at(wire.free_s, self._arrive, wire, other)

    def _arrive(self, wire: SimulatedWire, other: SimulatedWire) -> None:
        if self._ways(wire) in self._network.silent:
            wire.held.append((self._arrive, (wire, other)))
            return
        piece = wire.pieces.popleft()
        wire.arrived(piece)
        if not other.is_over:
            other.endpoint.received(piece)

    def _ways(self, wire: SimulatedWire) -> tuple[str, str]:
        return self.names if wire is self.wires[0] else (self.names[1], self.names[0])

    def end(self, wire: SimulatedWire) -> None:
        """Tell the other side of the end, behind what is under way."""
        other = wire.other
        if other is None:
            return
        self._network.at(max(wire.free_s, self._network.due_s()), self._deliver_end, wire, other)

    def _deliver_end(self, wire: SimulatedWire, other: SimulatedWire) -> None:
        if self._ways(wire) in self._network.silent:
            wire.held.append((self._deliver_end, (wire, other)))
        else:
            self.hear(other, "the other side has closed the connection")

    def heal(self) -> None:
        """Let arrive what was held up."""
        for wire in self.wires:
            held, wire.held = wire.held, []
            for call, arguments in held:
                self._network.at(self._network.due_s(), call, *arguments)

    def soon(self, call: Callable[..., object], *args: object) -> None:
        self._network.at(0.0, call, *args)

    def hear(self, wire: SimulatedWire, reason: str) -> None:
        if not wire.is_over:
            wire.is_over = True
            wire.endpoint.ended(reason)

    @property
    def is_over(self) -> bool:
        return all(wire.is_over for wire in self.wires)


class SimulatedNetwork:
    """Connects nodes.

    Args:
        clock: for the delays.
        random: for the delays, and for where writes are cut.
        delay_s: the longest way of a byte.
        bytes_per_s: that a reader takes.

    Attributes:
        delay_s: as it was given; it may be changed.
        silent: pairs of names (from, to) between which nothing arrives.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        delay_s: float = 0.01,
        bytes_per_s: float = 1e9,
    ) -> None:
        self.random = random
        self.bytes_per_s = bytes_per_s
        self.silent: set[tuple[str, str]] = set()
        self._clock = clock
        self.delay_s = delay_s
        self._accepts: dict[str, Callable[[], Listener]] = {}
        self._ports: dict[str, SimulatedPort] = {}
        self._connections: list[_Connection] = []

    def port(self, name: str) -> SimulatedPort:
        """Return the network as a node sees it; nodes listen at their names."""
        port = self._ports[name] = SimulatedPort(self, name)
        return port

    def silence(self, one: str, other: str, is_one_way: bool = False) -> None:
        """Let nothing arrive any more, from one to the other and, unless ``is_one_way``, back."""
        self.silent.add((one, other))
        if not is_one_way:
            self.silent.add((other, one))

    def heal(self) -> None:
        """Let everything arrive again; what is held up of connections that are there still arrives, too."""
        self.silent.clear()
        for connection in self._connections:
            connection.heal()

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two nodes; what is under way is lost."""
        for connection in self._connections:
            if {*connection.names} == {one, other}:
                for wire in connection.wires:
                    self.at(self.due_s(), connection.hear, wire, "connection reset")

    def crash(self, name: str) -> None:
        """End a node without a last message; the kernels of the others see it, as after ``kill -9``."""
        self._ports.pop(name).is_crashed = True
        self._accepts.pop(name, None)
        for connection in self._connections:
            for wire, owner in zip(connection.wires, connection.names, strict=False):
                if owner == name:
                    wire.abort()

    def listen(self, name: str, accept: Callable[[], Listener]) -> None:
        self._accepts[name] = accept

    def stop_listening(self, name: str) -> None:
        self._accepts.pop(name, None)

    def dial(self, name: str, address: str, endpoint: Listener) -> None:
        self.at(self.due_s(), self._connect, name, address, endpoint)

    def _connect(self, name: str, address: str, endpoint: Listener) -> None:
        accept = self._accepts.get(address)
        if (name, address) in self.silent or (address, name) in self.silent:
            return  # the endpoint's time for the handshake will be over
        if accept is None:
            endpoint.ended("connection refused")
            return
        self._connections = [each for each in self._connections if not each.is_over]
        connection = _Connection(self, (name, address))
        self._connections.append(connection)
        one, other = SimulatedWire(connection, endpoint), SimulatedWire(connection, accept())
        one.other, other.other = other, one
        connection.wires += [one, other]
        other.endpoint.connected(other)
        one.endpoint.connected(one)

    def due_s(self) -> float:
        """Return when something arrives that is sent now."""
        return self._clock.monotonic_s() + self.random.random() * self.delay_s

    def at(self, time_s: float, call: Callable[..., object], *args: object) -> None:
        self._clock.call_later(time_s - self._clock.monotonic_s(), call, *args)


class SimulatedPort:
    """The network as one node sees it (``links.node.Network``)."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self._name = name
        self.is_crashed = False

    async def listen(self, address: str, accept: Callable[[], Listener]) -> str:
        """Listen at the node's name; ``address`` must be it."""
        assert address == self._name, f"{self._name} cannot listen at {address}"
        self._network.listen(address, accept)
        return address

    def dial(self, address: str, endpoint: Listener) -> None:
        if not self.is_crashed:
            self._network.dial(self._name, address, endpoint)

    async def close(self) -> None:
        """Listen no more."""
        self._network.stop_listening(self._name)
