"""Parts that are written without being joined, on a real socket that nobody reads."""

from __future__ import annotations

import asyncio
import socket

import pytest

from leveret.core import transports
from leveret.core.transports import write_parts


class Pausing(asyncio.Protocol):
    """Counts how often it is asked to pause."""

    def __init__(self) -> None:
        self.pauses = 0

    def pause_writing(self) -> None:
        self.pauses += 1


# True is for versions of Python whose ``writelines`` does not ask; the others ask once nevertheless.
@pytest.mark.parametrize("never_pauses", [False, True])
async def test_a_peer_that_does_not_read_has_the_protocol_paused(
    never_pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transports, "_NEVER_PAUSES", never_pauses)
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(Pausing, sock=ours)
    transport.set_write_buffer_limits(2_000, 1_000)

    write_parts(transport, [bytes(4_000_000), b"\xce"])

    assert protocol.pauses == 1
    assert transport.get_write_buffer_limits() == (1_000, 2_000)
    transport.abort()
    theirs.close()
    await asyncio.sleep(0)
