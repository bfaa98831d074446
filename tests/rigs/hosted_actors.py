"""Actors that tests run in processes of their own, where they are imported by name."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

from leveret.actors.actor import IGNORE, OtpActor
from leveret.actors.gen_server import NOREPLY, GenServer
from leveret.actors.links.sendable import message
from leveret.actors.runtime.ref import Ref
from leveret.actors.service import Service, ServiceSpec, plain, ready

log = logging.getLogger("rigs.hosted_actors")


@message
@dataclass
class Order:
    article: str
    pieces: int


@dataclass
class Unmarked:
    article: str


class Clerk(GenServer):
    """Obeys the requests and mails of a test."""

    def init(self, greeting: Any = None, peer: Ref | None = None) -> Any:
        self.peer = peer
        if peer is not None:
            self.post(peer, ("here is", self.ref))
        return greeting

    def handle_call(self, request: Any, frm: Any) -> Any:
        match request:
            case ("pid",):
                return os.getpid()
            case ("echo", value):
                return value
            case ("spawn",):
                return self.runtime.spawn(Clerk)
            case ("peer alive",):
                return self.peer is not None and self.peer.is_alive
            case ("later",):
                return NOREPLY
            case ("remote error",):
                raise LookupError("no such article")
        raise TypeError(request)

    def handle_cast(self, message: Any) -> None:
        match message:
            case ("watch", Ref() as ref, Ref() as told):
                self.told = told
                self.monitor(ref)
            case ("link", Ref() as ref):
                self.link(ref)
            case ("trap", Ref() as told):
                self.trap_exits, self.told = True, told
            case ("surprise",):
                self.stop(object())
            case ("exit", Ref() as ref, reason):
                self.exit(ref, reason)
            case ("tell", Ref() as ref, text):
                self.post(ref, text)
            case ("log" | "print" as how, text):
                self.write(how, text)
            case ("stop", reason):
                self.stop(reason)
            case ("hang",):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                threading.Event().wait()
            case _:
                raise ValueError(message)

    def write(self, how: str, text: str) -> None:
        if how == "log":
            log.warning(text)
            threading.Thread(target=log.info, args=("from a thread",)).start()
        else:
            sys.stdout.write(text + "\n")
            sys.stderr.write(text + " as an error\n")

    def handle_info(self, message: Any) -> None:
        kind = type(message).__name__.lower()
        ref = message.ref if kind == "down" else message.sender
        self.post(self.told, (kind, message.reason, ref))


class Trapper(GenServer):
    """Traps exits and tells the reason of its end."""

    trap_exits = True

    def init(self, peer: Ref) -> None:
        self.peer = peer

    def handle_call(self, request: Any, frm: Any) -> Any:
        return os.getpid()

    def terminate(self, reason: object) -> None:
        self.post(self.peer, ("stopped", reason))


class Fails(OtpActor):
    def init(self, text: str) -> None:
        raise ValueError(text)


class Declines(OtpActor):
    def init(self) -> object:
        return IGNORE


class Dies(OtpActor):
    def init(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Slow(Service):
    """Acknowledges its start in a later turn."""

    def init(self) -> object:  # type: ignore[override]
        return super().init(ServiceSpec(plain, (_slow,), waits_for_ready=True))


async def _slow() -> None:
    await asyncio.sleep(0)
    ready("at last")
    await asyncio.Event().wait()


async def work(*names: str) -> None:
    ready()
    await asyncio.Event().wait()


async def never_ready() -> None:
    await asyncio.Event().wait()


async def crashes_at_start() -> None:
    raise KeyError("x")
