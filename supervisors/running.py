"""Run a supervision tree: as a whole program, or inside a program with an event loop.

``run(tree)`` is the main function of a service: it starts an event loop and the tree, and returns when
the tree has ended. SIGINT (Ctrl-C) and SIGTERM stop it in order, within a time; a second signal kills what
is left. ``async with start(tree)`` does the same within a running loop and leaves signals alone.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.runtime.runtime import Runtime
from leveret.actors.runtime.signals import KILL, Crash, StartFailed, is_orderly
from leveret.core.errors import ActorError
from leveret.core.log.loggers import logger
from leveret.supervisors.reports import MAX_INTENSITY, SHUTDOWN
from leveret.supervisors.requests import StartChild
from leveret.supervisors.spec import Report, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from leveret.supervisors.tree import Tree
from leveret.supervisors.tree_view import SEPARATOR, Node, render, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.signals import StartResult
    from leveret.core.clock import Clock

log = logger(__name__)

STOP_TIMEOUT_S: Final = 30.0
_LEFT_S: Final = 1.0  # for coroutines that have been cancelled and processes that have been killed
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class TreeFailedError(ActorError):
    """The tree did not start, or gave up.

    Where a child has crashed, ``__cause__`` is an exception of the class and text of the last crash, with its traceback
    as a note.

    Attributes:
        reason: of the failed start, or of the end of the tree.
        child: the path of the child that failed, from the root's name; "" if no child failed.
        error: the reason of the child's last end or start.
        restarts: the number of restarts after which its supervisor gave up.
    """

    def __init__(
        self, text: str, reason: object, child: str = "", error: object = None, restarts: int = 0
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.child = child
        self.error = reason if error is None else error
        self.restarts = restarts
        self.__cause__ = _exception_of(self.error)


class ChildError(ActorError):
    """A supervisor did not start a child; ``reason`` is its answer, and ``__cause__`` as in ``TreeFailedError``."""

    def __init__(self, path: str, reason: object) -> None:
        super().__init__(f"{path} did not start a child: {_text(reason)}")
        self.reason = reason
        self.__cause__ = _exception_of(reason)


def _exception_of(reason: object) -> BaseException | None:
    return reason.as_exception() if isinstance(reason, Crash) else None


def _text(reason: object) -> str:
    if isinstance(reason, Crash):
        return f"{reason.kind.__name__}: {reason.text}"
    return repr(reason)


def _given_up(report: Report) -> TreeFailedError:
    """Return the error for a root that gives up; it names the child at the end of the chain of causes."""
    last, ends = report, [f"{report.supervisor} {report.next}"]
    while last.cause is not None and last.cause.cause is not None:
        last = last.cause.cause
        ends.insert(0, f"{last.supervisor} {last.next}")
    child = f"{last.supervisor}{SEPARATOR}{last.spec.id}"
    error = None if last.cause is None else last.cause.reason
    text = f"{child} could not be kept running: {_text(error)} ({', '.join(ends)})"
    return TreeFailedError(text, MAX_INTENSITY, child, error, last.restarts)


def _not_started(name: str, reason: object) -> TreeFailedError:
    """Return the error for a root that did not start; it names the innermost child that failed."""
    path, error = [name], reason
    while isinstance(error, tuple) and len(error) == 2 and error[0] == "shutdown":
        if not (isinstance(error[1], tuple) and error[1][:1] == ("failed_to_start_child",)):
            break
        _, child, error = error[1]
        path.append(str(child))
    child = SEPARATOR.join(path)
    return TreeFailedError(f"{child} did not start: {_text(error)}", reason, child, error)


class RunningTree:
    """A tree that runs in this event loop.

    Children are named by their path below the root: ``"web"``, ``"workers > mailer"``; ``""`` is the root.

    Attributes:
        name: of the root.
        runtime: where it runs.
        root: the address of the topmost supervisor.
        is_stopping: whether it has been told to stop.
    """

    def __init__(self, name: str, runtime: Runtime, root: Ref, gave_up: Sequence[Report]) -> None:
        self.name = name
        self.runtime = runtime
        self.root = root
        self.is_stopping = False
        self._is_killed = False
        self._gave_up = gave_up  # holds the report, if the root ends because of its intensity
        self._ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if root.is_alive:
            runtime.watch(root, self._note_end)

    # Its actors.

    def nodes(self) -> list[Node]:
        """Return all that runs, or should, parents first, in start order."""
        return list(walk(self.runtime, self.root))

    def render(self) -> str:
        return render(self.nodes())

    def find(self, path: str) -> Ref:
        """Return the address of the actor at a place in the tree; ActorError: none runs there."""
        for node in self.nodes():
            if SEPARATOR.join(node.labels[1:]) == path and node.ref is not None:
                return node.ref
        raise ActorError(f"no actor runs at {path!r}")

    def send(self, path: str, message: Any) -> None:
        """Send a mail to the actor that runs there."""
        self.runtime.send(self.find(path), message)

    async def call(self, path: str, request: Any, timeout_s: float | None = 5.0) -> Any:
        """Ask the actor that runs there; see ``Runtime.call``."""
        return await self.runtime.call(self.find(path), request, timeout_s)

    async def start_child(self, path: str, *args: Any, timeout_s: float | None = None) -> Ref:
        """Start a child of a pool; ``args`` follow the arguments that all children have.

        Raises:
            ChildError: it did not start, or there are ``children_max`` already.
        """
        answer = await self.call(path, StartChild(args), timeout_s)
        if answer[0] != "ok" or answer[1] is None:
            raise ChildError(path, answer[1])
        ref: Ref = answer[1]
        return ref

    # The end.

    async def wait_ended(self) -> object:
        """Wait until the tree has ended and return the reason.

        Raises:
            TreeFailedError: it ended by itself because a child could not be kept running.
        """
        reason = await asyncio.shield(self._ended)
        if not self.is_stopping and self._gave_up:
            raise _given_up(self._gave_up[0])
        if not self.is_stopping and not is_orderly(reason):
            raise TreeFailedError(f"the tree has ended: {_text(reason)}", reason)
        return reason

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop in order; actors that have not ended after ``timeout_s`` are killed.

        Coroutines that were killed get as much time again to clean up.
        """
        self.is_stopping = True
        await self.runtime.shutdown(min(timeout_s, _LEFT_S) if self._is_killed else timeout_s)

    def kill(self) -> None:
        """Kill everything at once; ``stop`` then waits only for the ends."""
        self.is_stopping = self._is_killed = True
        for cell in self.runtime.cells():
            self.runtime.exit(cell.ref, KILL)

    def _note_end(self, reason: object) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)


def _begin(
    tree: Tree | SupervisorSpec, clock: Clock | None
) -> tuple[RunningTree, asyncio.Future[StartResult]]:
    """Start a tree; the future gets the outcome."""
    name, spec = (tree.name, tree.spec()) if isinstance(tree, Tree) else ("root", tree)
    reports: list[Report] = []
    also = spec.on_report

    def note(report: Report) -> None:
        if report.context == SHUTDOWN and report.reason == MAX_INTENSITY:
            reports.append(report)
        if also is not None:
            also(report)

    runtime = Runtime(clock)
    started: asyncio.Future[StartResult] = asyncio.get_running_loop().create_future()
    root = runtime.start_link(
        None, Supervisor, (replace(spec, on_report=note),), started.set_result, name
    )
    return RunningTree(name, runtime, root, reports), started


async def _wait_started(running: RunningTree, started: asyncio.Future[StartResult]) -> None:
    """Wait until all children run.

    Raises:
        TreeFailedError: one did not start.
    """
    outcome = await asyncio.shield(started)
    if isinstance(outcome, StartFailed) and not running.is_stopping:
        raise _not_started(running.name, outcome.reason)


@asynccontextmanager
async def start(
    tree: Tree | SupervisorSpec,
    *,
    stop_timeout_s: float = STOP_TIMEOUT_S,
    clock: Clock | None = None,
) -> AsyncIterator[RunningTree]:
    """Run a tree in the event loop that runs, for as long as the ``async with`` block lasts.

    The block is entered when all children have started, and the tree is stopped at its end.

    Args:
        tree: a ``Tree`` or the spec of its root.
        stop_timeout_s: how long its stop may take until the rest is killed.
        clock: for its timers; the loop's own time by default.

    Raises:
        TreeFailedError: on entering, when a child did not start; nothing is left of the tree then.
    """
    running, started = _begin(tree, clock)
    try:
        await _wait_started(running, started)
        yield running
    finally:
        await running.stop(stop_timeout_s)


def run(
    tree: Tree | SupervisorSpec,
    *,
    stop_timeout_s: float = STOP_TIMEOUT_S,
    on_started: Callable[[RunningTree], None] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run a tree as a program, from the main thread; return when it has ended.

    Args:
        tree: a ``Tree`` or the spec of its root.
        stop_timeout_s: how long its stop may take after SIGINT or SIGTERM until the rest is killed.
        on_started: called when all children have started.
        loop_factory: makes the event loop, for instance ``uvloop.new_event_loop``.

    Raises:
        TreeFailedError: a child did not start, or could not be kept running.
    """
    loop = (loop_factory or asyncio.new_event_loop)()
    try:
        loop.run_until_complete(_run(tree, stop_timeout_s, on_started))
    except TreeFailedError as error:
        raise error.with_traceback(None)  # noqa: B904  # the frames in here say nothing about the failure
    finally:
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop as ``asyncio.run`` does, but do not wait for ever for a coroutine."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=_LEFT_S))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def _run(
    tree: Tree | SupervisorSpec,
    stop_timeout_s: float,
    on_started: Callable[[RunningTree], None] | None,
) -> None:
    loop = asyncio.get_running_loop()
    running, started = _begin(tree, None)
    stops: list[asyncio.Task[None]] = []

    def take(number: signal.Signals) -> None:
        if stops:
            log.warning("second signal, killing all actors signal=%s", number.name)
            running.kill()
            stops[0].cancel()
        else:
            log.info("stopping signal=%s", number.name)
            stops.append(loop.create_task(running.stop(stop_timeout_s)))

    for number in _SIGNALS:
        loop.add_signal_handler(number, take, number)
    try:
        await _wait_started(running, started)
        if on_started is not None and not running.is_stopping:
            on_started(running)
        await running.wait_ended()
    finally:
        await asyncio.gather(*stops, return_exceptions=True)
        await running.stop(stop_timeout_s)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
