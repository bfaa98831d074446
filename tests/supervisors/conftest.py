from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.supervisors.spec import ChildSpec, SupervisorSpec
from leveret.supervisors.supervisor import Supervisor
from rigs.supervision.children import Above
from rigs.supervision.player import FakeDriver, Plan
from rigs.supervision.runtime_base import send_request


@pytest.fixture
def drive() -> Callable[..., FakeDriver]:
    """Boot a core on scripted children: ``drive(child, ..., strategy=...)``."""

    def booted(*children: ChildSpec, **flags: Any) -> FakeDriver:
        driver = FakeDriver(SupervisorSpec(children=children, **flags))
        driver.boot()
        return driver

    return booted


@pytest.fixture
def child() -> Callable[..., ChildSpec]:
    """Make the spec of a scripted child: ``child("a", "ok err", on_shutdown="stub", ...)``."""

    def scripted(name: str, starts: str = "", on_shutdown: str = "no", **rest: Any) -> ChildSpec:
        return ChildSpec(name, Plan(starts.split(), on_shutdown), **rest)

    return scripted


@pytest.fixture
def ask(runtime: Runtime) -> Callable[[Ref, Any], Future[Any]]:
    """Send a request from outside; the answer comes into a future."""
    return lambda ref, request: send_request(runtime, ref, request)


@pytest.fixture
def start(runtime: Runtime) -> Any:
    """Start a supervisor under a parent of its own and return (ref, results)."""

    def started(spec: Any, actor_class: type = Supervisor, parent: Any = None) -> Any:
        results: list[Any] = []
        above = parent or runtime.spawn(Above)
        ref = runtime.start_link(above, actor_class, (spec,), results.append)
        return ref, results

    return started
