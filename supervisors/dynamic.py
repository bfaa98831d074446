"""simple_one_for_one: any number of children of one template, each with its own arguments.

Children have no ids; they are named by their addresses. A child costs one entry in a dict from
address to arguments (temporary children's arguments are not kept, they are never started again);
a ``Child`` exists only while one is being restarted. All are stopped at once, under one time-out.

Differs from OTP 25 and RabbitMQ 3.10.8: a child whose restart ignores is dropped (as OTP does since
erlang/otp#8230); both kept a bogus entry and crashed at shutdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from leveret.supervisors.core import (
    MAX_CHILDREN,
    SupervisorCore,
    is_expected_stop,
    is_shutdown_tuple,
)
from leveret.supervisors.effects import (
    RESTARTING,
    Again,
    Child,
    Failed,
    Operation,
    Start,
    Stop,
    StopAll,
)
from leveret.supervisors.groups import GroupCore
from leveret.supervisors.reports import SHUTDOWN_ERROR, START_ERROR
from leveret.supervisors.spec import Report

if TYPE_CHECKING:
    from leveret.supervisors.effects import Addresses
    from leveret.supervisors.spec import ChildSpec, SupervisorSpec

NOT_HERE = ("error", "simple_one_for_one")
_NEVER: Final = (0, None)  # restarted


class DynamicCore(SupervisorCore):
    """simple_one_for_one: children by address."""

    __slots__ = ("args", "children", "restart_counts", "template", "waiting")

    def __init__(self, spec: SupervisorSpec, args: tuple[Any, ...] = ()) -> None:
        super().__init__(spec)
        self.template = spec.children[0]
        self.args = (*self.template.args, *args)
        self.children: dict[Any, tuple[Any, ...] | None] = {}
        self.waiting: dict[Any, Child] | None = None
        # How often, and when last.
        self.restart_counts: dict[Any, tuple[int, float | None]] | None = None

    def boot(self) -> Operation:
        """Start nothing: children come by request."""
        yield from ()

    def stop_all(self) -> Operation:
        """Stop all children at once and report each distinct unexpected reason once."""
        refs = list(reversed(self.children))
        self.waiting = None
        if not refs:
            return
        template = self.template
        reasons = yield StopAll(refs, template)
        self.children.clear()
        for reason, count in self._unexpected(reasons):
            yield Report(SHUTDOWN_ERROR, reason, None, template, count)

    # Requests.

    def start_child(self, extra: Any = ()) -> Operation:
        """Start a child with the template's arguments and ``extra``."""
        if self.spec.children_max is not None and self._size() >= self.spec.children_max:
            return ("error", MAX_CHILDREN)
        spec = self.template
        if not isinstance(extra, tuple | list):
            return ("error", ("invalid_arguments", extra))
        args = (*self.args, *extra)
        answer = yield Start(spec, args)
        if answer.__class__ is Failed:
            return ("error", answer.reason)
        if answer is not None:
            self.children[answer] = None if spec.kind == "temporary" else args
        return ("ok", answer)

    def terminate_child(self, ref: Any, addresses: Addresses) -> Operation:
        """Stop the child with this address; a dead one is fine too."""
        if not addresses.is_address(ref):
            return NOT_HERE
        child = self._find(ref) or (self.waiting or {}).get(ref)
        if child is None:
            return ("error", "not_found") if addresses.is_alive(ref) else "ok"
        if child.is_running:
            reason = yield Stop(ref, child.spec)
            if not is_expected_stop(child.spec, reason, self.spec.dialect):
                yield Report(SHUTDOWN_ERROR, reason, ref, child.spec)
        self._forget(child)
        return "ok"

    def restart_child(self, child_id: Any) -> Any:
        """Refuse: a dynamic child that was stopped is gone."""
        return NOT_HERE

    def delete_child(self, child_id: Any) -> Any:
        """Refuse, as ``restart_child``."""
        return NOT_HERE

    def which_children(self) -> list[tuple[None, Any, str]]:
        """List (None, address | ``restarting``, type), the newest first."""
        child_type = self.template.type
        states: list[Any] = [RESTARTING] * len(self.waiting or ())
        states.extend(reversed(self.children))
        return [(None, state, child_type) for state in states]

    def count_children(self, addresses: Addresses) -> dict[str, int]:
        """Count one spec, the children that run, and all children under their type."""
        size = self._size()
        is_supervisor = self.template.type == "supervisor"
        return {
            "specs": 1,
            "active": len(self.children),
            "supervisors": size if is_supervisor else 0,
            "workers": 0 if is_supervisor else size,
        }

    def get_childspec(self, key: Any) -> Any:
        """Return the template for its own id or for the address of a child."""
        is_known = key == self.template.id or self._find(key) is not None
        return ("ok", self.template) if is_known else ("error", "not_found")

    def members(self) -> Iterator[Child]:
        """Iterate over the children of this moment, the oldest first; ``Child`` objects are made one by one."""
        counts = self.restart_counts or {}
        for ref, args in list(self.children.items()):
            child = Child(self.template, args, ref)
            child.restarts, child.restarted_s = counts.get(ref, _NEVER)
            yield child
        if self.waiting is not None:
            yield from list(self.waiting.values())

    # SupervisorCore's hooks.

    def _find(self, ref: Any) -> Child | None:
        try:
            args = self.children[ref]
        except (KeyError, TypeError):
            return None
        return Child(self.template, args, ref)

    def _forget(self, child: Child) -> None:
        self._take_out(child)
        child.ref = None

    def _others_matter(self) -> bool:
        return self._size() > 0

    def _wait(self, again: Again) -> None:
        self._take_out(again.child)
        super()._wait(again)
        if self.waiting is None:
            self.waiting = {}
        self.waiting[again.old_ref] = again.child

    def _start_again(self, child: Child, now_s: float) -> Operation:
        old_ref = child.last_ref
        self._take_out(child)
        child.ref = None
        answer = yield Start(child.spec, child.args or ())
        if answer.__class__ is Failed:
            again = Again(child, old_ref)
            self._wait(again)
            yield Report(START_ERROR, answer.reason, old_ref, child.spec)
            return again
        if answer is not None:
            self.children[answer] = child.args
            if self.restart_counts is None:
                self.restart_counts = {}
            child.ref = answer
            child.count_restart(now_s)
            self.restart_counts[answer] = child.restarts, now_s
        return None

    def _stop_group(self, child: Child) -> Operation:
        yield from ()

    def _take_out(self, child: Child) -> None:
        """Remove the child; it keeps how often it has been restarted."""
        if child.is_running:
            del self.children[child.ref]
            if self.restart_counts is not None:
                child.restarts, child.restarted_s = self.restart_counts.pop(child.ref, _NEVER)
        elif child.ref is not None and self.waiting is not None:
            del self.waiting[child.last_ref]

    def _size(self) -> int:
        return len(self.children) + len(self.waiting or ())

    def _unexpected(self, reasons: Iterable[Any]) -> Iterable[tuple[Any, int]]:
        """Group the reasons that are worth a report; equal ones print the same."""
        groups: dict[str, list[Any]] = {}
        for reason in reasons:
            if not _is_expected(self.template, reason, self.spec.dialect):
                groups.setdefault(repr(reason), []).append(reason)
        return [(same[0], len(same)) for same in groups.values()]


def _is_expected(spec: ChildSpec, reason: Any, dialect: str) -> bool:
    if dialect == "rabbitmq" and spec.shutdown != "brutal_kill" and is_shutdown_tuple(reason):
        return True
    return is_expected_stop(spec, reason, dialect)


def make_core(spec: SupervisorSpec, args: tuple[Any, ...] = ()) -> GroupCore | DynamicCore:
    """Make the core for the spec's strategy; its children get ``args`` after their own."""
    if spec.strategy == "simple_one_for_one":
        return DynamicCore(spec, args)
    return GroupCore(spec, args)
