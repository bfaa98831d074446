"""Control methods as scripts: a generator asks other actors and goes on with their answers.

The control path (declare, bind, consume, close, ...) needs answers of queues and of the metadata store,
in order, while its actor goes on receiving mail. Such a handler is written as a generator that yields
each wait; ``Script`` runs it on continuations, one answer at a time:

* ``Ask(to, request)`` gives the reply of a GenServer; when the server dies or does not answer,
  ``CallFailed`` is the value; it is not raised, as its meaning depends on the script.
* ``Until(register)`` calls ``register(resume)`` and goes on with what ``resume`` is called with.

An exception inside the generator goes to ``failed``. The message path never uses scripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import CallExit, CallFailed

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime


class Ask(Struct, eq=False):
    """Wait for the reply of ``to``; ``timeout_s`` None waits for as long as it lives.

    The request goes by way of ``via``, if given, so that it stays behind what was sent there.
    """

    to: Ref
    request: object
    timeout_s: float | None = None
    via: Ref | None = None


class Until(Struct, eq=False):
    """Wait until the function given to ``register`` is called; its argument is the value."""

    register: Callable[[Callable[[Any], None]], object]


Steps: TypeAlias = Generator[Ask | Until, Any, Any]


def _raise(problem: Exception) -> None:
    raise problem


class Script:
    """One running generator of an actor; ``failed`` takes its exception, or else the actor fails."""

    __slots__ = ("_done", "_failed", "_owner", "_stepping", "_steps", "_waiting")

    def __init__(
        self,
        owner: GenServer,
        steps: Steps,
        done: Callable[[Any], None],
        failed: Callable[[Exception], None] = _raise,
    ) -> None:
        self._owner = owner
        self._steps = steps
        self._done = done
        self._failed = failed
        self._stepping = False
        self._waiting: list[Any] = []

    def resume(self, value: Any = None) -> None:
        """Go on with ``value`` until the script waits again or ends.

        An answer may come before the wait for it has returned; it is taken up by the loop, so the
        stack does not grow with the number of steps.
        """
        self._waiting.append(value)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._waiting:
                effect = self._steps.send(self._waiting.pop())
                self._begin(effect)
        except StopIteration as end:
            self._stepping = False
            self._done(end.value)
        except Exception as problem:  # noqa: BLE001  # handed to the owner, which decides
            self._stepping = False
            self._failed(problem)
        else:
            self._stepping = False

    def close(self) -> None:
        """Give up where it waits: the generator gets ``GeneratorExit`` there. For owners that end."""
        if not self._stepping:
            self._steps.close()

    def _begin(self, effect: Ask | Until) -> None:
        if isinstance(effect, Ask):
            self._owner.call(effect.to, effect.request, self.resume, effect.timeout_s, effect.via)
        else:
            effect.register(self._resume_as_owner)

    def _resume_as_owner(self, value: Any = None) -> None:
        """Resume in a turn of the owner, from any caller."""
        self._owner.runtime.run_as(self._owner.ref, self.resume, value)


async def run_in_task(runtime: Runtime, steps: Steps) -> Any:
    """Run a script outside the actors, for operators; return its result, or raise what it raises."""
    value: Any = None
    try:
        while True:
            effect = steps.send(value)
            if isinstance(effect, Ask):
                request = effect.to, effect.request, effect.timeout_s
                try:
                    value = await runtime.call(*request)
                except CallExit as error:
                    value = CallFailed(error.reason)
            else:
                future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                effect.register(future.set_result)
                value = await future
    except StopIteration as end:
        return end.value
    finally:
        steps.close()  # when this task is cancelled
