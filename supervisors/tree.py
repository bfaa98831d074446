"""Write a supervision tree down piece by piece.

::

    shop = Tree("shop", strategy="rest_for_one", intensity=3, period_s=60)

    @shop.service
    async def prices() -> None: ...

    shop.command("search", ["search-server", "--port", "7700"])
    workers = shop.subtree("workers")
    workers.actor("mailer", Mailer, "smtp.example.org", isolation="process")

    run(shop)

Children start in the order in which they are written down. A mistake fails at its own line. This
module makes ``ChildSpec`` and ``SupervisorSpec``; programs that make their own specs do not need it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final, TypedDict, TypeVar, Unpack, overload

from leveret.actors.service import Service, ServiceSpec, plain
from leveret.supervisors.backoff import Backoff
from leveret.supervisors.spec import (
    AutoShutdown,
    ChildSpec,
    ChildType,
    Isolation,
    Report,
    Restart,
    Restarted,
    Shutdown,
    SpecError,
    Strategy,
    SupervisorSpec,
)
from leveret.supervisors.supervisor import Supervisor

Body = Callable[..., Coroutine[Any, Any, object]]
_B = TypeVar("_B", bound=Body)
_ANY_CHILD: Final = ChildSpec("any", Supervisor)
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

    Raises:
        SpecError: a flag is wrong.
    """

    def __init__(self, name: str, **flags: Unpack[Flags]) -> None:
        self.name = name
        self._flags = flags
        self._empty = SupervisorSpec(**flags, children=(_ANY_CHILD,))
        self._children: dict[Hashable, Callable[[], ChildSpec]] = {}

    # Children.

    def add(self, child: ChildSpec) -> None:
        """Add a child; SpecError: the spec cannot be a child here, or its id is taken."""
        self._add(child, lambda: child)

    def _add(self, child: ChildSpec, now: Callable[[], ChildSpec]) -> None:
        """Add a child; ``now`` returns its spec when the tree's spec is made."""
        problem = self._empty.problem_with(child, self._children)
        if problem is not None:
            raise problem
        self._children[child.id] = now

    def actor(self, id: str, actor_class: Any, *args: Any, **options: Unpack[Options]) -> None:
        """Add an actor: an ``OtpActor``, a ``GenServer``, a ``Supervisor`` or any Thespian actor.

        With ``isolation="process"`` it may be named by ``"package.module:Class"``.
        """
        is_class = isinstance(actor_class, type)
        kind: ChildType = (
            "supervisor" if is_class and issubclass(actor_class, Supervisor) else "worker"
        )
        spec = ChildSpec(id, actor_class, args, type=kind, **options)
        _check_actor_class(spec)
        self.add(spec)

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

        Raises:
            SpecError: ``function`` is not a coroutine function or does not take ``args``, or an option is wrong.
        """

        def add(body: _B) -> _B:
            name = id or getattr(body, "__name__", None)
            spec = service_spec(name, body, args, waits_for_ready, **options)
            _check_arguments(spec.id, body, args)
            self.add(spec)
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
        """Add a program; see ``CommandSpec`` in ``leveret.actors.processes.command``.

        Raises:
            ActorError: ``argv`` is not a list of strings, or another argument is wrong.
        """
        from leveret.actors.processes.command import Command, CommandSpec  # noqa: PLC0415

        spec = CommandSpec(
            argv if isinstance(argv, str) else tuple(argv),  # type: ignore[arg-type]  # refused
            cwd,
            env,
            output,
            ready_text=ready_text,
            ok_statuses=ok_statuses,
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
        options: Options = {"restart": restart, "significant": significant}
        child = ChildSpec(name, Supervisor, type="supervisor", **options)
        self._add(child, lambda: tree.child_spec(**options))
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
            _check_actor_class(template)
        else:
            template = service_spec(name, worker, args, **options)
        flags = self._with_hooks(flags)
        strategy = flags.setdefault("strategy", "simple_one_for_one")
        if strategy != "simple_one_for_one":
            text = f"strategy is {strategy!r}, but pools have simple_one_for_one: leave it out"
            raise SpecError("supervisor_data", ("invalid_strategy", strategy), text)
        spec = SupervisorSpec(**flags, children=(template,))
        self.add(ChildSpec(name, Supervisor, (spec,), type="supervisor"))

    # The specs.

    def spec(self) -> SupervisorSpec:
        """Return the supervisor's spec; SpecError: ``simple_one_for_one`` without its one child."""
        children = tuple(child() for child in self._children.values())
        return SupervisorSpec(**self._flags, children=children)

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
    id: Any,
    body: Body,
    args: tuple[Any, ...] = (),
    waits_for_ready: bool = False,
    **options: Unpack[Options],
) -> ChildSpec:
    """Return the child spec of a coroutine function that is called with ``args``; SpecError: ``body`` is none."""
    options.setdefault("label", id)  # so that the log names it
    spec = ChildSpec(id, Service, args, **options)
    _check_body(id, body)
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


def _check_actor_class(spec: ChildSpec) -> None:
    found = spec.actor_class
    if spec.isolation == "process":
        from leveret.actors.processes.target import target_of  # noqa: PLC0415  # loads msgpack

        target_of(found)
    elif not isinstance(found, type):
        remedy = "a coroutine function is added by service()"
        if isinstance(found, str):
            remedy = "a class can be named by a text with isolation='process'"
        text = f"child {spec.id!r}: {found!r} is not an actor class; {remedy}"
        raise SpecError("start_spec", ("invalid_actor_class", found), text)


def _check_body(id: str, body: object) -> None:
    """Refuse objects that are certainly not coroutine functions."""
    if inspect.iscoroutine(body):
        body.close()
        raise _not_a_service(id, body, "pass the function itself, and its arguments as args=(...)")
    function = body.func if isinstance(body, partial) else body
    is_python = isinstance(function, FunctionType | MethodType) and function.__name__ != "<lambda>"
    if not callable(function) or isinstance(function, type):
        raise _not_a_service(id, body, "an actor class is added by actor()")
    if is_python and not inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise _not_a_service(
            id, body, "write it with async def; asyncio.to_thread runs code that blocks"
        )


def _not_a_service(id: str, body: object, remedy: str) -> SpecError:
    text = f"service {id!r}: {body!r} is not a coroutine function; {remedy}"
    return SpecError("start_spec", ("invalid_service", body), text)


def _check_arguments(id: Any, body: Callable[..., object], args: tuple[Any, ...]) -> None:
    """Refuse arguments with which the function cannot be called."""
    try:
        signature = inspect.signature(body)
    except ValueError:  # of compiled code
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        text = f"service {id!r} cannot be called with args={args!r}: {error}"
        raise SpecError("start_spec", ("invalid_args", args), text) from None
