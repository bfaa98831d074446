from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leveret.actors.actor import OtpActor
from leveret.actors.ref import Ref
from leveret.actors.runtime import Runtime
from leveret.testing.virtual_clock import VirtualClock


class Log(OtpActor):
    """Writes down its mail, and does what a callable in the mail says."""

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


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def runtime(clock: VirtualClock) -> Runtime:
    """A runtime without a loop, driven by hand."""
    return Runtime(clock=clock)


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
