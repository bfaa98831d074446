"""Walk a running supervision tree and print it.

The tree is read, not asked: walking costs no mail and works while a supervisor is busy stopping a
child. A node is named by its path, ``vhost:/ > queue:orders > backing``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leveret.supervisors.supervisor import Supervisor, label_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.supervisors.effects import Child

SEPARATOR: Final = " > "


@dataclass(slots=True)
class Node:
    """One place in the tree.

    Attributes:
        labels: names from the root down to here.
        actor_class: name of the class that runs, or would.
        type: ``worker`` or ``supervisor``.
        ref: the address, None for a child that does not run.
        state: ``running``, ``restarting`` or ``undefined`` (it does not run).
        restarts: how often the supervisor has started it again.
        restarted_s: when it did so last, by the runtime's clock; None for never.
        mailbox: mails that wait.
    """

    labels: tuple[str, ...]
    actor_class: str
    type: str
    ref: Ref | None
    state: str
    restarts: int
    mailbox: int
    restarted_s: float | None = None

    @property
    def path(self) -> str:
        return SEPARATOR.join(self.labels)

    @property
    def label(self) -> str:
        return self.labels[-1]

    @property
    def depth(self) -> int:
        return len(self.labels) - 1


def walk(runtime: Runtime, root: Ref) -> Iterator[Node]:
    """Yield the root and everything supervised under it, parents first, in start order.

    Args:
        runtime: where the tree runs; not needed as long as the whole tree is on one.
        root: any supervisor or other actor; a dead one has no nodes.
    """
    if root.is_alive:
        actor = root.cell.actor
        kind = "supervisor" if isinstance(actor, Supervisor) else "worker"
        labels = (label_of(actor),)
        yield _running(labels, type(actor).__name__, kind, root)
        yield from _below(labels, actor)


def _below(labels: tuple[str, ...], actor: Any) -> Iterator[Node]:
    if not isinstance(actor, Supervisor) or not hasattr(actor, "supervisor_core"):
        return
    for child in actor.supervisor_core.members():
        spec = child.spec
        here = (*labels, spec.label_of(child.args))
        if not child.is_running or not child.ref.is_alive:
            state = "restarting" if child.state is not None else "undefined"
            name = getattr(spec.actor_class, "__name__", str(spec.actor_class))
            yield Node(here, name, spec.type, None, state, child.restarts, 0, child.restarted_s)
            continue
        ref = child.ref
        running = ref.cell.actor
        label = label_of(running) if child.args is None else here[-1]
        here = (*labels, label)
        yield _running(here, type(running).__name__, spec.type, ref, child)
        yield from _below(here, running)


def _running(
    labels: tuple[str, ...], actor_class: str, kind: str, ref: Ref, child: Child | None = None
) -> Node:
    restarts = 0 if child is None else child.restarts
    restarted_s = None if child is None else child.restarted_s
    mailbox = ref.cell.mail_count()
    return Node(labels, actor_class, kind, ref, "running", restarts, mailbox, restarted_s)


def render(nodes: Iterable[Node]) -> str:
    """Return the tree as text, one node a line, as ``leveret tree`` prints it."""
    lines = []
    followed: set[int] = set()  # depths at which a later sibling was drawn below
    for node in reversed(list(nodes)):
        depth = node.depth
        name = _branches(depth, followed) + node.label
        facts = f"{node.actor_class} {node.state} restarts={node.restarts} mailbox={node.mailbox}"
        lines.append(f"{name:<47} {facts}")
        followed = {level for level in followed if level < depth} | {depth}
    return "\n".join(reversed(lines))


def _branches(depth: int, followed: set[int]) -> str:
    if depth == 0:
        return ""
    trunk = "".join("│  " if level in followed else "   " for level in range(1, depth))
    return trunk + ("├─ " if depth in followed else "└─ ")
