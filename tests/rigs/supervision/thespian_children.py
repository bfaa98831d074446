"""Actors for supervisors on Thespian's bases; they write down what happens to them in a file."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystem,
    ActorSystemFailure,
    InvalidActorAddress,
)
from thespian.system.transport import UDPTransport
from thespian.test import get_free_admin_port

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.signals import IGNORE
from leveret.actors.thespian.base import AsyncioBase
from leveret.supervisors.spec import ChildSpec, SupervisorSpec

SIMPLE, ASYNCIO = "simpleSystemBase", "AsyncioBase"
TCP, UDP = "multiprocTCPBase", "multiprocUDPBase"
LEAVES_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <.*socket:ResourceWarning")  # Thespian
BASES = (SIMPLE, ASYNCIO, TCP, UDP)


@contextmanager
def actor_system(base: str) -> Iterator[ActorSystem]:
    """Run a Thespian system of its own, and end it whatever happens."""
    with ports_of_their_own() if base == UDP else nullcontext():
        system = _start(base)
        try:
            yield system
        finally:
            system.shutdown()
            if base in (TCP, UDP):
                gc.collect()  # now, while its sockets may be left open (``LEAVES_SOCKETS``)


class _UnsharedSocket(socket.socket):
    """A socket that shares its port with no other."""

    def setsockopt(self, level: int, option: int, *value: Any) -> None:
        if option != socket.SO_REUSEADDR:
            super().setsockopt(level, option, *value)


@contextmanager
def ports_of_their_own() -> Iterator[None]:
    """Let no two UDP actors have the same port, in this process and in those that it forks.

    Thespian sets SO_REUSEADDR and then binds a socket to any free port. For UDP, Linux takes a port as free that
    other sockets with SO_REUSEADDR have, and gives their datagrams to the newest of them. With ten actors that
    happens once in 2,800 sockets, and each request of the program has a socket: one run of these tests in twenty
    failed by it.
    """
    with pytest.MonkeyPatch.context() as patch:
        unshared = SimpleNamespace(**vars(socket) | {"socket": _UnsharedSocket})
        patch.setattr(UDPTransport, "socket", unshared)
        yield


def _start(base: str) -> ActorSystem:
    """Start a system; on another port if the first is taken."""
    if base == ASYNCIO:
        return ActorSystem(AsyncioBase(), transientUnique=True)
    quiet = {"version": 1} if base in (TCP, UDP) else False
    for is_last in (False, False, True):
        capabilities = {"Admin Port": get_free_admin_port(), "Convention Address.IPv4": ""}
        try:
            return ActorSystem(base, capabilities, logDefs=quiet, transientUnique=True)
        except (InvalidActorAddress, ActorSystemFailure):
            if is_last:
                raise
    raise AssertionError


def note(path: str, line: str) -> None:
    """Add a line; one write of a few bytes, so that processes do not mix theirs."""
    with Path(path).open("a") as file:
        file.write(line + "\n")


def noted(path: Path) -> list[str]:
    """Read all lines."""
    return path.read_text().split() if path.exists() else []


class Worker(Actor):
    """A plain Thespian actor with arguments; notes ``+name`` and ``-name``."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        if f"no {name}" in noted_words(path):
            raise OSError(f"{name} cannot start")
        note(path, f"+{name}")

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "who":
            self.send(sender, (self.name, os.getpid()))
        elif message == "boom":
            note(self.path, f"!{self.name}")
            raise ValueError("boom")
        elif message == "quit":
            self.send(self.myAddress, ActorExitRequest())
        elif isinstance(message, ActorExitRequest):
            note(self.path, f"-{self.name}")


def noted_words(path: str) -> str:
    found = Path(path)
    return found.read_text().replace("\n", " ") if found.exists() else ""


class Server(GenServer):
    """An OtpActor in the same place."""

    trap_exits = True

    def init(self, name: str, path: str) -> Any:
        self.name = name
        self.path = path
        self.alarmed = False
        if name == "unwilling":
            return IGNORE
        note(path, f"+{name}")
        return None

    def handle_mail(self, message: Any, sender: Any) -> Any:
        if message == "hello":
            self.post(sender, ("hello", self.name, self.myAddress))
            return None
        return super().handle_mail(message, sender)

    def handle_cast(self, message: Any) -> None:
        if message == "alarm":
            self.start_timer(0.01, "ring")
        elif message == "boom":
            raise ValueError("boom")
        elif message == "stop":
            self.stop("normal")

    def handle_info(self, message: Any) -> None:
        self.alarmed = self.alarmed or message == "ring"

    def handle_call(self, request: Any, frm: Any) -> Any:
        return {"pid": os.getpid(), "alarmed": self.alarmed}[request]

    def terminate(self, reason: object) -> None:
        note(self.path, f"-{self.name}:{reason}")


def spec(
    path: Path, *names: str, strategy: Any = "one_for_one", worker: type = Worker, **rest: Any
) -> SupervisorSpec:
    """Make the spec of a supervisor of workers with these names."""
    flags = {key: rest.pop(key) for key in ("intensity", "period_s") if key in rest}
    children = tuple(ChildSpec(name, worker, (name, str(path)), **rest) for name in names)
    return SupervisorSpec(strategy, children=children, **{"intensity": 5, **flags})
