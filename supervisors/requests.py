"""Requests to a supervisor, as calls: ``await runtime.call(sup, WhichChildren())``.

The answers are OTP's: ``"ok"``, ``("ok", ref)``, ``("ok", None)`` for a child that ignored its
start, ``("error", reason)``. Requests that meet an operation under way are answered after it, in
order.

All but ``GetChildSpec`` and ``StartChild`` of a spec, which are about classes, reach supervisors in
processes of their own as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leveret.actors.links.sendable import message

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leveret.supervisors.spec import ChildSpec


@message
@dataclass(slots=True)
class StartChild:
    """Start a child: of this spec, or under simple_one_for_one with these further arguments.

    Answers ``("ok", ref | None)``, or ``error`` with ``("already_started", ref)``,
    ``already_present``, or the failure (simple_one_for_one) or ``(failure, spec)`` (the others).
    """

    child: ChildSpec | tuple[Any, ...] = ()


@message
@dataclass(slots=True)
class TerminateChild:
    """Stop a child, by id or, under simple_one_for_one, by address; not restarted, not counted.

    Answers ``"ok"`` or ``error`` with ``not_found`` or ``simple_one_for_one``.
    """

    child: Hashable


@message
@dataclass(slots=True)
class RestartChild:
    """Start a child again that was stopped.

    Answers ``("ok", ref | None)`` or ``error`` with ``running``, ``restarting``, ``not_found``,
    ``simple_one_for_one`` or the failure.
    """

    child: Hashable


@message
@dataclass(slots=True)
class DeleteChild:
    """Forget the spec of a child that was stopped.

    Answers ``"ok"`` or ``error`` with ``running``, ``restarting``, ``not_found`` or
    ``simple_one_for_one``.
    """

    child: Hashable


@message
@dataclass(slots=True)
class WhichChildren:
    """List ``(id, ref | None | "restarting", type)``, newest first; dynamic ids are None."""


@message
@dataclass(slots=True)
class CountChildren:
    """Count: a dict with ``specs``, ``active``, ``supervisors``, ``workers``."""


@dataclass(slots=True)
class GetChildSpec:
    """Return ``("ok", spec)`` with all defaults filled in, or ``("error", "not_found")``."""

    child: Hashable
