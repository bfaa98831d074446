from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from rigs.waiting import wait_until


class Log(OtpActor):
    """Records its mail, and calls callables in it."""

    trap_exits = True

    def init(self, seen: list[Any]) -> None:
        self.seen = seen

    def handle_mail(self, message: Any, sender: Ref | None) -> None:
        if callable(message):
            message(self)
        else:
            self.seen.append(message)


class Mortal(Log):
    trap_exits = False


def _actor_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "leveret-actor"}


@pytest.fixture(autouse=True)
def no_actor_thread_is_left() -> Iterator[None]:
    """A system that was shut down has no threads, as soon as no handler is under way any more."""
    before = _actor_threads()
    yield
    wait_until(lambda: _actor_threads() <= before, "a thread of an actor is left")


@pytest.fixture
def log_class() -> type[Log]:
    return Log


@pytest.fixture
def mortal_class() -> type[Mortal]:
    return Mortal


@pytest.fixture
def reason_of(runtime: Runtime) -> Callable[[Ref], list[object]]:
    """Give a list that will hold the reason an actor ends for."""

    def watch(ref: Ref) -> list[object]:
        reasons: list[object] = []
        runtime.watch(ref, reasons.append)
        return reasons

    return watch
