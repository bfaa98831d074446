"""A link whose transport is as strict as uvloop's: it refuses a write once it is closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.processes.link import NodeLink
from leveret.actors.runtime.runtime import Runtime


class StrictTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_closing = False

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if self._is_closing:
            raise RuntimeError("the handler is closed")
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self.close()


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.fixture
def link(runtime: Runtime, lost: list[str]) -> NodeLink:
    owner = runtime.spawn(OtpActor)
    return NodeLink(runtime, owner, lambda *_: None, lambda: lost.append("lost"))


def test_what_is_written_before_the_connection_goes_first(link: NodeLink, runtime: Runtime) -> None:
    transport = StrictTransport()
    link.tell("one")
    runtime.run_until_idle()
    link.connection_made(transport)
    link.tell("two")
    runtime.run_until_idle()

    assert transport.written == link.encode("one") + link.encode("two")


def test_nothing_is_written_to_a_transport_that_is_closing(
    link: NodeLink, runtime: Runtime
) -> None:
    transport = StrictTransport()
    link.connection_made(transport)
    link.tell("word")
    transport.abort()

    runtime.run_until_idle()

    assert transport.written == b""


def test_a_link_that_is_lost_may_be_closed_and_written_to(
    link: NodeLink, runtime: Runtime, lost: list[str]
) -> None:
    transport = StrictTransport()
    link.connection_made(transport)
    transport.abort()
    link.connection_lost(None)

    link.tell("word")
    link.close()
    runtime.run_until_idle()

    assert (transport.written, lost) == (b"", ["lost"])


def test_all_is_written_before_a_link_is_closed(link: NodeLink) -> None:
    transport = StrictTransport()
    link.connection_made(transport)
    link.tell("last word")

    link.close()

    assert transport.written == link.encode("last word")
    assert transport.is_closing()


def test_a_link_that_was_closed_before_it_was_made_is_given_up(
    link: NodeLink, lost: list[str]
) -> None:
    transport = StrictTransport()
    link.close()
    link.connection_made(transport)

    assert transport.is_closing()
    assert lost == ["lost"]
