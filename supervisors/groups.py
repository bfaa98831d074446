"""one_for_one, one_for_all and rest_for_one: children with ids, in start order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from leveret.supervisors.core import MAX_CHILDREN, SupervisorCore, is_expected_stop
from leveret.supervisors.effects import Again, Child, Failed, Operation, Start, Stop
from leveret.supervisors.reports import PROGRESS, SHUTDOWN_ERROR, START_ERROR, wants_progress
from leveret.supervisors.spec import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.supervisors.effects import Addresses
    from leveret.supervisors.spec import ChildSpec, SupervisorSpec


FEW_CHILDREN: Final = 32  # are searched one by one; more by a dict


class GroupCore(SupervisorCore):
    """one_for_one, one_for_all and rest_for_one: children by id, in start order."""

    __slots__ = ("_by_ref", "children")

    def __init__(self, spec: SupervisorSpec, args: tuple[Any, ...] = ()) -> None:
        super().__init__(spec)
        self.children: dict[Hashable, Child] = {
            child.id: Child(child, (*child.args, *args)) for child in spec.children
        }
        self._by_ref: dict[Any, Child] | None = None  # of many children, also of some that are dead

    def boot(self) -> Operation:
        """Start the children; after a failure stop the started children and return the reason."""
        failed = yield from self._start_each(list(self.children.values()))
        if failed is None:
            return None
        child, reason = failed
        child.ref = None
        yield from self.stop_all()
        return ("shutdown", ("failed_to_start_child", child.spec.id, reason))

    def stop_all(self) -> Operation:
        """Stop every child, the newest first, each waited for."""
        yield from self._stop_each(list(self.children.values()))

    # Requests, with the answers of OTP's functions.

    def start_child(self, spec: ChildSpec) -> Operation:
        """Start a new child behind all others; its spec is kept if that succeeds."""
        problem = self.spec.problem_with(spec)
        if problem is not None:
            return ("error", problem.reason)
        present = self.children.get(spec.id)
        if present is not None:
            running = present.is_running
            return ("error", ("already_started", present.ref) if running else "already_present")
        if self.spec.children_max is not None and len(self.children) >= self.spec.children_max:
            return ("error", MAX_CHILDREN)
        child = Child(spec, spec.args)
        answer = yield from self._start(child)
        if answer.__class__ is Failed:
            return ("error", (answer.reason, spec))
        if answer is not None or spec.kind != "temporary":
            self.children[spec.id] = child
        return ("ok", answer)

    def terminate_child(self, child_id: Hashable, addresses: Addresses) -> Operation:
        """Stop a child and keep its spec (but a temporary one's); takes a restart back too."""
        child = self._named(child_id)
        if child is None:
            return ("error", "not_found")
        yield from self._stop(child)
        self._forget(child)
        return "ok"

    def restart_child(self, child_id: Hashable) -> Operation:
        """Start a child that was stopped; does not count as a restart."""
        child = self._named(child_id)
        problem = self._not_stopped(child)
        if child is None or problem is not None:
            return ("error", problem)
        answer = yield from self._start(child)
        if answer.__class__ is Failed:
            return ("error", answer.reason)
        return ("ok", answer)

    def delete_child(self, child_id: Hashable) -> Any:
        """Forget the spec of a child that was stopped."""
        problem = self._not_stopped(self._named(child_id))
        if problem is not None:
            return ("error", problem)
        del self.children[child_id]
        return "ok"

    def which_children(self) -> list[tuple[Hashable, Any, str]]:
        """List (id, address | None | ``restarting``, type), the newest first."""
        return [(c.spec.id, c.state, c.spec.type) for c in reversed(self.children.values())]

    def count_children(self, addresses: Addresses) -> dict[str, int]:
        """Count specs, living children, supervisors and workers (these two also if stopped)."""
        children = self.children.values()
        supervisors = sum(child.spec.type == "supervisor" for child in children)
        return {
            "specs": len(children),
            "active": sum(child.is_running and addresses.is_alive(child.ref) for child in children),
            "supervisors": supervisors,
            "workers": len(children) - supervisors,
        }

    def get_childspec(self, child_id: Hashable) -> Any:
        """Return a child's spec with all defaults filled in."""
        child = self._named(child_id)
        return ("error", "not_found") if child is None else ("ok", child.spec)

    def members(self) -> Iterator[Child]:
        return iter(list(self.children.values()))

    def _named(self, child_id: Any) -> Child | None:
        try:
            return self.children.get(child_id)
        except TypeError:  # nothing that can be an id
            return None

    # SupervisorCore's hooks.

    def _find(self, ref: Any) -> Child | None:
        if ref is None:
            return None
        if len(self.children) > FEW_CHILDREN and isinstance(ref, Hashable):
            child = self._index().get(ref)
            return child if child is not None and child.ref is ref else None
        for child in self.children.values():
            if child.ref is ref:
                return child
        return None

    def _note(self, ref: Any, child: Child) -> None:
        """Put a new address into the index, or drop that where few children are left."""
        if len(self.children) > FEW_CHILDREN:
            self._index()[ref] = child
        else:
            self._by_ref = None

    def _index(self) -> dict[Any, Child]:
        """Return the children by address, made anew when half of it is dead."""
        index = self._by_ref
        if index is None or len(index) > 2 * len(self.children):
            children = self.children.values()
            index = self._by_ref = {c.ref: c for c in children if c.is_running}
        return index

    def _forget(self, child: Child) -> None:
        child.ref = None
        if child.spec.kind == "temporary":
            del self.children[child.spec.id]

    def _others_matter(self) -> bool:
        children = self.children.values()
        return any(child.spec.significant and child.ref is not None for child in children)

    def _start_again(self, child: Child, now_s: float) -> Operation:
        old_ref = child.last_ref
        child.ref = None
        group = yield from self._stop_each(self._group(child))
        failed = yield from self._start_each(group, now_s)
        if failed is None:
            return None
        culprit: Child = failed[0]
        again = Again(culprit, old_ref if culprit is child else None)
        self._wait(again)
        return again

    def _stop_group(self, child: Child) -> Operation:
        child.ref = None  # it is dead
        yield from self._stop_each(self._group(child))

    def _group(self, child: Child) -> list[Child]:
        strategy = self.spec.strategy
        if strategy == "one_for_one":
            return [child]
        children = list(self.children.values())
        return children if strategy == "one_for_all" else children[children.index(child) :]

    # Starting and stopping, in order.

    def _start(self, child: Child) -> Operation:
        answer = yield Start(child.spec, child.args or ())
        if answer is None or answer.__class__ is Failed:
            return answer
        child.ref = answer
        if self._by_ref is not None:
            self._note(answer, child)
        if wants_progress():
            yield Report(PROGRESS, None, answer, child.spec)
        return answer

    def _start_each(self, children: list[Child], again_s: float | None = None) -> Operation:
        """Start in order; return None, or (child, reason) of the first that failed.

        ``again_s`` is the time when this is a restart.
        """
        for child in children:
            answer = yield from self._start(child)
            if answer.__class__ is Failed:
                yield Report(START_ERROR, answer.reason, child.ref, child.spec)
                return (child, answer.reason)
            if answer is not None:
                child.count_restart(again_s)
            elif child.spec.kind == "temporary":
                del self.children[child.spec.id]
        return None

    def _stop_each(self, children: list[Child]) -> Operation:
        """Stop the newest first; return the children whose spec stays, all but temporary ones."""
        for child in reversed(children):
            yield from self._stop(child)
            self._forget(child)
        return [child for child in children if child.spec.id in self.children]

    def _stop(self, child: Child) -> Operation:
        ref = child.ref
        if not child.is_running:
            child.ref = None
            return
        reason = yield Stop(ref, child.spec)
        if not is_expected_stop(child.spec, reason, self.spec.dialect):
            yield Report(SHUTDOWN_ERROR, reason, ref, child.spec)

    def _not_stopped(self, child: Child | None) -> str | None:
        if child is None:
            return "not_found"
        if child.ref is None:
            return None
        return "running" if child.is_running else "restarting"
