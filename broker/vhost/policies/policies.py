"""The policies of a vhost: which two apply to a queue or exchange, and their values together.

To everything at most one policy and at most one operator policy apply: of those whose pattern is found
in the name and whose ``apply-to`` fits, the one of the highest priority. Among equal priorities the
first by name is taken, where RabbitMQ takes any. A policy with a key that belongs to other queue types only
(``queue_types.py``) does not apply to a queue at all, the rest of its keys included.

Where both set a key the operator's is a ceiling: the lesser value holds. An argument of the queue
itself is stronger than either, except for limits, of which again the least holds (``settings_under``).

A look-up tries the expressions of all policies, strongest first; with many policies, or costly expressions, it
takes long and is cut: ``search`` pauses, and leaves its finding for the ``of_queue`` or ``of_exchange`` that follows.

``Policies`` does no I/O; ``apply_to_all`` sends the queues a change. Source: ``rabbit_policy``
and ``rabbit_amqqueue_process:process_args_policy``, 3.10.8.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.broker.mail import PolicyChanged
from leveret.broker.registry.queue_settings import (
    NO_POLICIES,
    NO_SETTINGS,
    AppliedPolicies,
    settings_of,
    settings_under,
)
from leveret.broker.registry.queue_types import CLASSIC, TYPES
from leveret.broker.vhost.patterns import Pattern, compile_pattern
from leveret.core.slices import TurnBudget, sliced
from leveret.routing.exchange import ALTERNATE_EXCHANGE

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.registry.registry import QueueEntry
    from leveret.metadata.tables import PolicyRow
    from leveret.routing.exchange import Exchange
    from leveret.routing.topology import Topology

TRIED_AT_ONCE: Final = 10
"""Expressions tried before the clock is asked whether a look-up pauses."""

EXCHANGES: Final = "exchanges"
Kind: TypeAlias = str
"""``EXCHANGES``, or the name of a queue type."""


@dataclass(frozen=True, slots=True)
class _Policy:
    row: PolicyRow
    pattern: Pattern
    fits: frozenset[Kind]


class Policies:
    """The policies of one vhost; their rows are checked before (``policy_validation.check``).

    Args:
        now_s: decides where a look-up pauses; a clock that moves within a turn.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._policies: list[_Policy] = []  # the strongest first
        self._operator: list[_Policy] = []
        self._applied: dict[tuple[str | None, str | None], AppliedPolicies] = {}
        self._found: tuple[str, Kind, AppliedPolicies] | None = None  # the last look-up
        self._version = 0

    def __bool__(self) -> bool:
        return bool(self._policies or self._operator)

    def put(self, row: PolicyRow) -> None:
        """Take a policy in, in place of one of its name."""
        self.remove(row)
        policies = self._operator if row.is_operator else self._policies
        policies.append(
            _Policy(
                row,
                compile_pattern(row.pattern),
                frozenset(_fits(row)),
            )
        )
        policies.sort(key=lambda each: (-each.row.priority, each.row.name))

    def remove(self, row: PolicyRow) -> None:
        policies = self._operator if row.is_operator else self._policies
        policies[:] = [each for each in policies if each.row.name != row.name]
        self._applied.clear()
        self._found = None
        self._version += 1

    def of_queue(self, name: str, queue_type: str = CLASSIC) -> AppliedPolicies:
        return self._of(name, queue_type) if self else NO_POLICIES

    def of_exchange(self, name: str) -> AppliedPolicies:
        return self._of(name, EXCHANGES) if self else NO_POLICIES

    def search(self, name: str, kind: Kind) -> Iterator[None]:
        """Look up which policies apply; yields where others should run.

        The next ``of_queue`` or ``of_exchange`` of that name takes the finding, unless policies were
        changed meanwhile.
        """
        wire = name.encode("utf-8", "surrogateescape")
        budget, version = TurnBudget(now_s=self._now_s), self._version
        found: list[PolicyRow | None] = []
        for policies in (self._policies, self._operator):
            found.append(None)
            for number, each in enumerate(list(policies), 1):
                if kind in each.fits and each.pattern.finds(wire):
                    found[-1] = each.row
                    break
                if number % TRIED_AT_ONCE == 0 and budget.is_used_up():
                    yield
                    budget.restart()
        if version == self._version:
            self._found = name, kind, self._applied_of(*found)

    def _of(self, name: str, kind: Kind) -> AppliedPolicies:
        if self._found is None or self._found[:2] != (name, kind):
            for _ in self.search(name, kind):
                pass
        assert self._found is not None
        return self._found[2]

    def _applied_of(self, policy: PolicyRow | None, operator: PolicyRow | None) -> AppliedPolicies:
        if policy is None and operator is None:
            return NO_POLICIES
        key = (_name_of(policy), _name_of(operator))
        applied = self._applied.get(key)
        if applied is None:
            applied = self._applied[key] = AppliedPolicies(policy, operator)
        return applied


def _fits(row: PolicyRow) -> Iterator[Kind]:
    if row.apply_to != "exchanges":
        for each in TYPES.values():
            if each.foreign_keys.isdisjoint(row.definition):
                yield each.name
    if row.apply_to != "queues":
        yield EXCHANGES


def _name_of(row: PolicyRow | None) -> str | None:
    return row.name if row is not None else None


def apply_to_queue(policies: Policies, entry: QueueEntry) -> bool:
    """Set the policies that apply to a queue; return whether they changed. None apply to delay queues."""
    if entry.delayed_exchange is not None:
        return False
    applied = policies.of_queue(entry.name, entry.settings.queue_type)
    before, entry.applied = entry.applied, applied
    if before is applied or (before.policy, before.operator) == (applied.policy, applied.operator):
        return False
    own = settings_of(entry.arguments)
    entry.settings = (
        applied.settings if own is NO_SETTINGS else settings_under(own, applied.definition)
    )
    return True


def apply_to_exchange(policies: Policies, exchange: Exchange) -> None:
    """Give an exchange the alternate exchange of the policy that applies to it.

    Cached routes hold until the topology is touched.
    """
    definition = policies.of_exchange(exchange.name).definition
    exchange.policy_alternate = definition.get(ALTERNATE_EXCHANGE)


async def apply_to_all(
    runtime: Runtime, policies: Policies, topology: Topology[QueueEntry]
) -> None:
    """Apply changed policies to all exchanges and queues of a vhost, in slices.

    An exchange or queue declared meanwhile has them already; a queue restarted meanwhile finds them
    in its entry.
    """
    async for exchange in sliced(list(topology.exchanges.values())):
        await _paced(policies, exchange.name, EXCHANGES)
        apply_to_exchange(policies, exchange)
    topology.touch()
    async for entry in sliced(list(topology.queues.values())):
        await _paced(policies, entry.name, entry.settings.queue_type)
        if apply_to_queue(policies, entry) and entry.ref is not None and not entry.is_remote:
            runtime.send(entry.ref, PolicyChanged())


async def _paced(policies: Policies, name: str, kind: Kind) -> None:
    for _ in policies.search(name, kind):
        await asyncio.sleep(0)
