"""Bad bytes for the links between nodes, from both ends: the node goes on, and so do its other links.

A peer of the test dials a node, or is dialled by it, and sends strangers' bytes, damaged handshakes, or, with the
secret, damaged recordings and invented frames, cut anywhere. ``LEVERET_FUZZ_S`` changes the length of the slow run.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import random
import time
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fuzz import link_streams, sessions
from leveret.actors.gen_server import From, GenServer
from leveret.actors.links.handshake import HANDSHAKE_BYTES_MAX, Claim, Handshake, HandshakeError
from leveret.actors.links.limits import LinkLimits
from leveret.actors.links.node import Node
from leveret.actors.runtime.runtime import Runtime
from rigs.links.linked_nodes import SECRET
from rigs.waiting import eventually

LENGTH_S = float(os.environ.get("LEVERET_FUZZ_S", "600"))
QUICK_ROUNDS = 12
AT_ONCE = 16
ANSWER_S = 20.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PATIENCE_S = 0.02  # for an answer to bytes that may have got none
GROWTH_BYTES_MAX = 64 << 20
LIMITS = LinkLimits(
    mail_bytes_max=1 << 20, unsent_bytes_max=4 << 20, redial_s=0.001, redial_max_s=0.01, handshake_s=1.0
)  # fmt: skip


class Echo(GenServer):
    """Returns what it is asked. Whoever has the secret may have it end, and then another is started."""

    trap_exits = True

    def handle_call(self, request: Any, frm: From | None) -> Any:
        return request

    def handle_cast(self, message: Any) -> None:
        """Take it."""

    def handle_info(self, message: Any) -> None:
        """Take it."""


class Target:
    """The node that is attacked, and an honest one that is linked with it all the time.

    Attributes:
        errors: what the loop's handler for exceptions was told, with tracebacks.
        address: where it listens.
        incarnations: how often the honest link was made.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        asyncio.get_running_loop().set_exception_handler(self._note)
        self.node = Node(Runtime(name="target"), SECRET, LIMITS)
        self.honest = Node(Runtime(name="honest"), SECRET, LIMITS)
        self.address = ""
        self._echo = self.node.runtime.spawn(Echo)

    def _note(self, _: object, told: dict[str, Any]) -> None:
        error = told.get("exception")
        self.errors.append(
            told["message"] + "".join(traceback.format_exception(error) if error else "")
        )

    async def begin(self) -> None:
        self.address = await self.node.listen("127.0.0.1:0")
        self.honest.dial(self.address)
        await self.honest.connected("target", ANSWER_S)
        self._link = self.honest._peers["target"]

    async def check(self) -> None:
        """Ask an actor of the node over the honest link, which must be the same as ever."""
        if not self._echo.is_alive:
            self._echo = self.node.runtime.spawn(Echo)
        ref = self.honest.ref(self.node.runtime.node, self._echo.num)
        for value in (1, b"x" * 100_000):
            assert await self.honest.runtime.call(ref, value, ANSWER_S) == value
        assert self.honest._peers["target"] is self._link, "the honest link was broken"
        assert self.errors == []

    async def rest(self) -> None:
        """Wait until nothing is left of the attackers."""
        await eventually(lambda: self.node.nodes == ["honest"])
        await eventually(lambda: not self.node._shaking and len(self.node._endpoints) == 1)

    async def end(self) -> None:
        for node in (self.honest, self.node):
            await node.close()
            await node.runtime.shutdown(5)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    made = Target()
    await made.begin()
    yield made
    await made.end()
    await asyncio.sleep(0)
    assert made.errors == []


@pytest.fixture(scope="module")
def talk() -> list[list[link_streams.Frame]]:
    return link_streams.recorded()


class Port:
    """Where the node is led to dial; open as long as the test, because asyncio leaks what it accepts while it closes.

    Attributes:
        address: to dial.
    """

    def __init__(self) -> None:
        self.address = ""
        self._wanted: asyncio.Future[Streams] | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._dialled, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def next(self) -> Streams:
        """Return the next connection; all others are closed at once."""
        self._wanted = asyncio.get_running_loop().create_future()
        return await self._wanted

    async def _dialled(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is None or wanted.done():
            writer.transport.abort()
        else:
            wanted.set_result((reader, writer))


class Attack:
    """One connection to the node, or from it."""

    names = itertools.count()

    def __init__(
        self, target: Target, port: Port, talk: list[list[link_streams.Frame]], seed: int
    ) -> None:
        self._target = target
        self._port = port
        self._talk = talk
        self._rng = random.Random(seed)
        self._name = f"attacker{next(self.names)}"
        self._came = 0

    async def run(self) -> None:
        """Attack from one of the two ends."""
        if self._rng.random() < 0.5:
            host, _, port = self._target.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            await self._serve(reader, writer, is_dialler=True)
            return
        self._target.node.dial(self._port.address)
        try:
            reader, writer = await asyncio.wait_for(self._port.next(), ANSWER_S)
            await self._serve(reader, writer, is_dialler=False)
        finally:
            self._target.node.hang_up(self._port.address)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_dialler: bool
    ) -> None:
        try:
            if self._rng.random() < 0.4:
                await self._be_a_stranger(reader, writer, is_dialler)
            else:
                await self._be_a_node(reader, writer, is_dialler)
        except (ConnectionError, HandshakeError, TimeoutError):
            pass  # the node has closed the connection, as it may
        finally:
            writer.transport.abort()

    async def _be_a_stranger(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_dialler: bool
    ) -> None:
        """Send bytes without the secret: the node answers with a handshake at most, and links with nobody."""
        rng = self._rng
        secret = rng.choice((b"another secret...", SECRET.secret))
        handshake = self._handshake(is_dialler, secret)
        said = [handshake.begin()] if is_dialler else []
        if rng.random() < 0.3:
            said = [rng.randbytes(rng.randint(1, 400))]
        try:
            for _ in range(3):
                data = b"".join(said)
                if data:
                    is_spoiled = secret == SECRET.secret or rng.random() < 0.5
                    await self._send(writer, sessions.spoiled(rng, [data]) if is_spoiled else data)
                came = await self._read(reader)
                said = [handshake.receive(came)]
        finally:
            assert self._came <= HANDSHAKE_BYTES_MAX
            assert secret == SECRET.secret or self._name not in self._target.node.nodes

    async def _be_a_node(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_dialler: bool
    ) -> None:
        """Make a handshake, and then send damaged or invented frames."""
        rng = self._rng
        handshake = self._handshake(is_dialler, SECRET.secret)
        await self._send(writer, handshake.begin())
        while handshake.their_claim is None:
            await self._send(writer, handshake.receive(await self._read(reader, ANSWER_S)))
        assert handshake.my_claim is not None
        incarnation = handshake.my_claim.incarnation
        frames = rng.choice(self._talk) if rng.random() < 0.5 else link_streams.invented(rng)
        packed = [each.packed(incarnation) for each in frames]
        await self._send(writer, sessions.spoiled(rng, [b"", *packed]))
        if rng.random() < 0.5:
            while await self._read(reader):
                """Read on until the node has nothing more to say, or closes."""

    def _handshake(self, is_dialler: bool, secret: bytes) -> Handshake:
        claim = Claim(self._rng.randrange(1 << 32), self._rng.randrange(100))
        nonce = self._rng.randbytes(32)
        return Handshake(f"{self._name}/1", secret, nonce, is_dialler, lambda *_: claim)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Send bytes, cut anywhere."""
        at = 0
        while at < len(data):
            step = self._rng.choice((1, 10, 1_000, len(data), len(data)))
            writer.write(data[at : at + step])
            at += step
            if self._rng.random() < 0.3:
                await asyncio.sleep(0)
            if step == 1 and at > 50:
                writer.write(data[at:])
                break
        await writer.drain()

    async def _read(self, reader: asyncio.StreamReader, within_s: float = PATIENCE_S) -> bytes:
        data = await asyncio.wait_for(reader.read(100_000), within_s)
        if not data:
            raise ConnectionResetError("the node has closed the connection")
        self._came += len(data)
        return data


def memory_bytes() -> int:
    """Return how much anonymous memory of this process, which has all nodes, is resident."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


async def fuzz(
    target: Target, talk: list[list[link_streams.Frame]], seed: int, go_on: Callable[[int], bool]
) -> int:
    """Attack several times at once until ``go_on(rounds)`` is false; return the attacks."""
    logging.getLogger("leveret").setLevel(logging.CRITICAL)  # each refused link has a line
    rng = random.Random(seed)
    ports = [Port() for _ in range(AT_ONCE)]
    rounds = before = 0
    try:
        for port in ports:
            await port.open()
        while go_on(rounds):
            seeds = [rng.randrange(1 << 48) for _ in range(AT_ONCE)]
            attacks = [
                Attack(target, port, talk, each) for port, each in zip(ports, seeds, strict=True)
            ]
            found = await asyncio.gather(*[each.run() for each in attacks], return_exceptions=True)
            for used, error in zip(seeds, found, strict=True):
                assert error is None, f"{error!r} with attack seed {used}"
            await target.check()
            rounds += 1
            if rounds % QUICK_ROUNDS == 0:
                await target.rest()
                gc.collect()
                before = before or memory_bytes()
        await target.rest()
    finally:
        for port in ports:
            await port.close()
        await asyncio.sleep(0)  # the loop closes sockets that were aborted in its next round
        logging.getLogger("leveret").setLevel(logging.NOTSET)
    assert memory_bytes() - before < GROWTH_BYTES_MAX
    assert target.node.runtime.actor_count <= 2, "its server, and the echo"
    return rounds * AT_ONCE


async def test_bad_bytes_of_other_nodes(
    target: Target, talk: list[list[link_streams.Frame]], seed: int
) -> None:
    attacks = await fuzz(target, talk, seed, lambda rounds: rounds < QUICK_ROUNDS)

    assert attacks == QUICK_ROUNDS * AT_ONCE


@pytest.mark.slow
async def test_ten_minutes_of_bad_bytes_of_other_nodes(
    target: Target, talk: list[list[link_streams.Frame]], seed: int
) -> None:
    until_s = time.monotonic() + LENGTH_S

    assert await fuzz(target, talk, seed, lambda _: time.monotonic() < until_s) > LENGTH_S


def test_the_recording_has_what_links_carry(talk: list[list[link_streams.Frame]]) -> None:
    assert len(talk) == 2
    for said in talk:
        assert {each.kind for each in said} >= {*range(7)} - {6}, "all kinds but CLOSE"
