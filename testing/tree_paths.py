"""Finding actors of a running tree by path: ``vhost:/ > queue:orders > backing``.

A path lists labels from the root downwards; levels may be left out as long as exactly one actor matches,
so ``queue:orders > backing`` suffices if only one vhost has such a queue. ``*`` in a label matches any
text: ``connection:* > channel:1``. Labels that contain `` > `` themselves are given as a tuple. Where many
actors have one path (readers) a ``Node`` of the tree names one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.core.errors import LeveretError
from leveret.supervisors.supervisor import Supervisor
from leveret.supervisors.tree_view import SEPARATOR, Node, walk

if TYPE_CHECKING:
    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime

Path: TypeAlias = "str | Sequence[str] | Node"

_SHOWN: Final = 12  # labels in an error


class PathError(LeveretError):
    """A path matches no actor, an actor that does not run, or more than one."""


def labels_of(path: Path) -> tuple[str, ...]:
    """Return the labels of a path.

    Raises:
        PathError: the path or a label is empty.
    """
    if isinstance(path, Node):
        return path.labels
    labels = tuple(path.split(SEPARATOR)) if isinstance(path, str) else tuple(path)
    if not labels or not all(labels):
        raise PathError(f"{path!r} is no path; one looks like vhost:/ > queue:orders > backing")
    return labels


def matching(nodes: Iterable[Node], path: Path) -> list[Node]:
    """Return the nodes that a path matches, in the tree's order."""
    labels = labels_of(path)
    return [node for node in nodes if _names(labels, node.labels)]


def _names(wanted: Sequence[str], labels: Sequence[str]) -> bool:
    """Return whether the wanted labels occur in this order, the last one at the end."""
    if not _is_like(wanted[-1], labels[-1]):
        return False
    left = list(wanted[:-1])
    for label in reversed(labels[:-1]):
        if left and _is_like(left[-1], label):
            left.pop()
    return not left


def _is_like(wanted: str, label: str) -> bool:
    if "*" not in wanted:
        return wanted == label
    return re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), label, re.DOTALL) is not None


def find_all(nodes: Sequence[Node], path: Path) -> list[Node]:
    """Return the running nodes that a path matches: one, or several if it has a ``*``.

    Raises:
        PathError: no node matches; the text names the nearest existing node and its children.
    """
    found = [path] if isinstance(path, Node) else matching(nodes, path)
    if not found:
        raise PathError(_missing(nodes, labels_of(path)))
    running = [node for node in found if node.ref is not None and node.ref.is_alive]
    if not running:
        state = "dead" if found[0].ref is not None else found[0].state
        raise PathError(f"{found[0].path} does not run: it is {state}")
    if len(running) > 1 and not any("*" in label for label in labels_of(path)):
        paths = "\n".join(f"  {node.path}" for node in running[:_SHOWN])
        raise PathError(f"{_shown(path)} names {len(running)} actors:\n{paths}")
    return running


def _missing(nodes: Sequence[Node], labels: tuple[str, ...]) -> str:
    """Return an error text with the most similar label, or else with the nearest existing node."""
    if not nodes:
        return f"no actor is at {_shown(labels)}: the tree has ended"
    nearest, unknown = nodes[0], labels[0]
    for length in range(len(labels) - 1, 0, -1):
        above = matching(nodes, labels[:length])
        if above:
            nearest, unknown = above[0], labels[length]
            break
    below = [node for node in nodes if node.labels[: len(nearest.labels)] == nearest.labels][1:]
    kind, colon, _ = unknown.partition(":")
    labels_below = dict.fromkeys(
        node.label for node in below if node.label.startswith(kind + colon) or not colon
    )
    close = get_close_matches(unknown, labels_below, 1)
    if close:
        return f"no actor is at {_shown(labels)}\ndid you mean {close[0]}?"
    children = [node.label for node in below if node.depth == nearest.depth + 1]
    shown = ", ".join(children[:_SHOWN]) + (", ..." if len(children) > _SHOWN else "")
    return "\n".join(
        [
            f"no actor is at {_shown(labels)}",
            f"the nearest there is: {nearest.path}",
            f"its children: {shown or 'none'}",
        ]
    )


def _shown(path: Path) -> str:
    return f'"{SEPARATOR.join(labels_of(path))}"'


def mortal(runtime: Runtime, root: Ref) -> list[Node]:
    """Return the running actors whose death does not end the whole tree.

    Left out are the root, and restarted actors that have only supervisors of intensity 0 between themselves and
    the root: one such death ends the tree.
    """
    # Supervisors that end, with the whole tree, when any child ends.
    doomed: set[tuple[str, ...]] = set()
    found = []
    for node in walk(runtime, root):
        if node.ref is None:
            continue
        above = node.labels[:-1]
        if node.depth > 0 and not (above in doomed and is_restarted(node.ref)):
            found.append(node)
        elif _intensity(node.ref) == 0:
            doomed.add(node.labels)
    return found


def is_restarted(ref: Ref) -> bool:
    """Return whether the actor's supervisor restarts it."""
    parent = ref.cell.parent
    supervisor = parent.cell.actor if parent is not None else None
    members = supervisor.supervisor_core.members() if isinstance(supervisor, Supervisor) else ()
    return any(child.ref is ref and child.spec.kind != "temporary" for child in members)


def _intensity(ref: Ref) -> int | None:
    actor = ref.cell.actor
    return actor.supervisor_core.spec.intensity if isinstance(actor, Supervisor) else None
