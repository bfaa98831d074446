"""How a program starts and stops actors under OTP's rules in a system of Thespian."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from thespian.actors import ActorAddress, ActorExitRequest, ActorSystem

from leveret.actors.runtime.signals import SHUTDOWN, StartError
from leveret.actors.thespian.mail import Began, Begin, Ended, Ignored, Signal
from leveret.actors.thespian.port import SupervisedActor
from leveret.core.errors import ActorError

START_S: Final = 30.0
STOP_S: Final = 60.0


def start(
    system: ActorSystem, actor_class: type, *args: Any, label: str = "", timeout_s: float = START_S
) -> ActorAddress:
    """Start an actor, such as a supervisor, in a Thespian system, under OTP's rules.

    Args:
        system: where; on the process bases the class and its arguments are pickled.
        actor_class: a subclass of ``OtpActor`` or a plain Thespian ``Actor``.
        args: for its ``init`` or ``__init__``.
        label: its name in reports; default: that of its class.
        timeout_s: how long to wait for its ``init``.

    Returns:
        Its address.

    Raises:
        StartError: it failed, ignored its start, or did not answer in time.
    """
    address = system.createActor(SupervisedActor)
    begin = Begin(None, os.getpid(), actor_class, args, label=label)
    answer = _ask(system, address, begin, (Began, Ended, Ignored), timeout_s)
    if type(answer) is Began:
        return address
    if answer is None:
        system.tell(address, ActorExitRequest())
    reason = getattr(answer, "reason", "timeout" if answer is None else "ignore")
    raise StartError(reason)


def stop(system: ActorSystem, address: ActorAddress, timeout_s: float = STOP_S) -> Any:
    """Stop an actor that ``start`` started, and return the reason it ended of.

    Raises:
        ActorError: it has not ended within ``timeout_s``.
    """
    answer = _ask(system, address, Signal(SHUTDOWN, is_asked=True), (Ended,), timeout_s)
    if answer is None:
        raise ActorError(f"{address} has not stopped within {timeout_s} s")
    return answer.reason


def _ask(
    system: ActorSystem, to: ActorAddress, message: Any, kinds: tuple[type, ...], timeout_s: float
) -> Any:
    """Return the first answer of these kinds, or None; others that come meanwhile are dropped."""
    deadline_s = time.monotonic() + timeout_s
    answer = system.ask(to, message, timeout_s)
    while answer is not None and not isinstance(answer, kinds):
        answer = system.listen(max(0.0, deadline_s - time.monotonic()))
    return answer
