"""Write a supervision tree down piece by piece.

::

    shop = Tree("shop", strategy="rest_for_one", intensity=3, period_s=60)

    @shop.service
    async def prices() -> None: ...

    shop.command("search", ["search-server", "--port", "7700"])
    workers = shop.subtree("workers")
    workers.actor("mailer", Mailer, "smtp.example.org", isolation="process")

    run(shop)

Children start in the order in which they are written down. Everything here makes ``ChildSpec`` and
``SupervisorSpec``; programs with specs of their own need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from leveret.actors.service import Service, ServiceSpec, plain
from leveret.supervisors.backoff import Backoff
from leveret.supervisors.spec import (
    AutoShutdown,
    ChildSpec,
    Isolation,
    Report,
    Restart,
    Restarted,
    Shutdown,
    Strategy,
    SupervisorSpec,
)
from leveret.supervisors.supervisor import Supervisor

Body = Callable[..., Coroutine[Any, Any, object]]
_B = TypeVar("_B", bound=Body)
_STOP_TIMEOUT_S = 5.0
_STOP_SHARE = 0.8  # of the shutdown, so that a coroutine that goes on is named before it is killed


class Flags(TypedDict, total=False):
    """The fields of ``SupervisorSpec`` that a tree takes as they are."""

    strategy: Strategy
    intensity: int
    period_s: float
    auto_shutdown: AutoShutdown
    children_max: int | None
    on_report: Callable[[Report], None] | None
    on_restart: Callable[[Restarted], None] | None


class Options(TypedDict, total=False):
    """The fields of ``ChildSpec`` that a child takes as they are."""

    restart: Restart
    shutdown: Shutdown | None
    significant: bool
    label: str | Callable[..., str] | None
    isolation: Isolation
    start_timeout_s: float | None
    backoff: Backoff | None


class Tree:
    """A supervisor and its children.

    Args:
        name: of the supervisor in the printed tree and in the log.
        flags: as in ``SupervisorSpec``; subtrees get the hooks of the tree they are in.
    """

    def __init__(self, name: str, **flags: Unpack[Flags]) -> None:
        self.name = name
        self._flags = flags
        self._children: list[Callable[[], ChildSpec]] = []

    # Children.

    def add(self, child: ChildSpec) -> None:
        self._children.append(lambda: child)

    def actor(self, id: str, actor_class: Any, *args: Any, **options: Unpack[Options]) -> None:
        """Add an actor: an ``OtpActor``, a ``GenServer``, a ``Supervisor`` or any Thespian actor.

        With ``isolation="process"`` it may be named by ``"package.module:Class"``.
        """
        kind = isinstance(actor_class, type) and issubclass(actor_class, Supervisor)
        self.add(
            ChildSpec(id, actor_class, args, type="supervisor" if kind else "worker", **options)
        )

    @overload
    def service(self, function: _B, /) -> _B: ...

    @overload
    def service(
        self,
        /,
        *,
        id: str | None = None,
        args: tuple[Any, ...] = (),
        waits_for_ready: bool = False,
        **options: Unpack[Options],
    ) -> Callable[[_B], _B]: ...

    def service(
        self,
        function: Any = None,
        /,
        *,
        id: str | None = None,
        args: tuple[Any, ...] = (),
        waits_for_ready: bool = False,
        **options: Unpack[Options],
    ) -> Any:
        """Add a coroutine function; a decorator, with arguments or without.

        It is called with ``args``. When it returns it has ended ``normal``, when it raises it has crashed, and
        to stop it is cancelled.

        Args:
            function: a coroutine function.
            id: its name; that of the function by default.
            args: its arguments.
            waits_for_ready: it is started when it calls ``leveret.supervisors.ready()``; the children after it
                wait for that.
            options: as in ``ChildSpec``.
        """

        def add(body: _B) -> _B:
            self.add(service_spec(id or body.__name__, body, args, waits_for_ready, **options))
            return body

        return add if function is None else add(function)

    def command(
        self,
        id: str,
        argv: Iterable[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        output: Any = "inherit",
        ready_text: str | None = None,
        ok_statuses: tuple[int, ...] = (0,),
        **options: Unpack[Options],
    ) -> None:
        """Add a program; see ``CommandSpec`` in ``leveret.actors.processes.command``."""
        from leveret.actors.processes.command import Command, CommandSpec  # noqa: PLC0415

        spec = CommandSpec(
            tuple(argv), cwd, env, output, ready_text=ready_text, ok_statuses=ok_statuses
        )
        options.setdefault("label", id)  # so that the log names it
        self.add(ChildSpec(id, Command, (spec,), **options))

    # Supervisors below.

    def subtree(
        self,
        name: str,
        *,
        restart: Restart = "permanent",
        significant: bool = False,
        **flags: Unpack[Flags],
    ) -> Tree:
        """Add a supervisor and return it, to be given children."""
        tree = Tree(name, **self._with_hooks(flags))
        self._children.append(lambda: tree.child_spec(restart=restart, significant=significant))
        return tree

    def pool(
        self,
        name: str,
        worker: Any,
        *args: Any,
        restart: Restart = "transient",
        shutdown: Shutdown | None = None,
        isolation: Isolation = "none",
        start_timeout_s: float | None = None,
        **flags: Unpack[Flags],
    ) -> None:
        """Add a supervisor of any number of copies of one worker, none at first.

        ``RunningTree.start_child(name, ...)`` starts one with further arguments of its own.

        Args:
            name: of the supervisor; its children have the name and their number.
            worker: an actor class or a coroutine function.
            args: the arguments that all have in common.
            restart: when one is started again.
            shutdown: as in ``ChildSpec``.
            isolation: ``process`` for one process each.
            start_timeout_s: as in ``ChildSpec``.
            flags: as in ``SupervisorSpec``; ``children_max`` bounds the pool.
        """
        options: Options = {
            "restart": restart,
            "shutdown": shutdown,
            "isolation": isolation,
            "start_timeout_s": start_timeout_s,
        }
        template: ChildSpec
        if isinstance(worker, type | str):
            template = ChildSpec(name, worker, args, **options)
        else:
            template = service_spec(name, worker, args, **options)
        flags = self._with_hooks(flags)
        flags["strategy"] = "simple_one_for_one"
        spec = SupervisorSpec(**flags, children=(template,))
        self.add(ChildSpec(name, Supervisor, (spec,), type="supervisor"))

    # The specs.

    def spec(self) -> SupervisorSpec:
        """Return the supervisor's spec; SpecError: it is wrong, or a name is there twice."""
        return SupervisorSpec(**self._flags, children=tuple(child() for child in self._children))

    def child_spec(self, **options: Unpack[Options]) -> ChildSpec:
        """Return the spec of the whole tree as a child of another supervisor."""
        return ChildSpec(self.name, Supervisor, (self.spec(),), type="supervisor", **options)

    def _with_hooks(self, flags: Flags) -> Flags:
        """Return the flags of a supervisor below, with the hooks of this one where it has none."""
        merged: Flags = {**flags}
        if "on_report" in self._flags:
            merged.setdefault("on_report", self._flags["on_report"])
        if "on_restart" in self._flags:
            merged.setdefault("on_restart", self._flags["on_restart"])
        return merged


def service_spec(
    id: str,
    body: Body,
    args: tuple[Any, ...] = (),
    waits_for_ready: bool = False,
    **options: Unpack[Options],
) -> ChildSpec:
    """Return the child spec of a coroutine function that is called with ``args``."""
    options.setdefault("label", id)  # so that the log names it
    spec = ChildSpec(id, Service, **options)
    shutdown = spec.shutdown
    stop_s = _STOP_SHARE * shutdown if isinstance(shutdown, int | float) else _STOP_TIMEOUT_S
    if spec.isolation == "none":
        service = ServiceSpec(plain, (body, *args), waits_for_ready, stop_s)
        return replace(spec, args=(service,))
    from leveret.actors.processes.functions import FunctionService  # noqa: PLC0415  # loads msgpack
    from leveret.actors.processes.target import target_of  # noqa: PLC0415

    return replace(
        spec, actor_class=FunctionService, args=(target_of(body), args, waits_for_ready, stop_s)
    )
