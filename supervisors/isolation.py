"""Children that do not run on the supervisor's own loop."""

from __future__ import annotations

from typing import Any


def in_process(actor_class: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return what to start here for an actor in a process of its own."""
    from leveret.actors.processes.host import ProcessHost  # noqa: PLC0415  # loads msgpack

    return ProcessHost, (actor_class, args)
