"""A coroutine function that runs as a service in a process of its own."""

from __future__ import annotations

from typing import Any

from leveret.actors.processes.target import Target, load
from leveret.actors.service import Service, ServiceSpec, plain


class FunctionService(Service):
    """A service that is given the name of its coroutine function (``target_of``)."""

    def init(  # type: ignore[override]  # plain data, because it comes from another process
        self,
        target: Target,
        args: tuple[Any, ...],
        waits_for_ready: bool,
        stop_timeout_s: float,
        *more: Any,
    ) -> object:
        args = (load(target), *args)
        return super().init(ServiceSpec(plain, args, waits_for_ready, stop_timeout_s), *more)
