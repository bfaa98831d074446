"""The table of a vhost's states, against the facts that it stands for.

Tests: broker/node/outages.py
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.broker.node.outages import Outages
from leveret.broker.vhost.states import ENDED, TRANSITIONS, UP, Event, State, VhostState
from leveret.testing.virtual_clock import VirtualClock

ENDS = (Event.MACHINE_FAILED, Event.RESTARTS_USED_UP, Event.STOPPED)


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    reached = {state for following in TRANSITIONS.values() for state in following.values()}

    assert set(TRANSITIONS) == set(State)
    assert reached | {State.NEW} == set(State)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.NEW, Event.QUEUES_STARTED),
        (State.OPENING, Event.QUEUES_STARTED),
        (State.STOPPING, Event.STORE_OPENED),
        (State.RUNNING, Event.STORE_OPENED),
        (State.FAILED, Event.RESTARTS_USED_UP),
        (State.STOPPED, Event.STARTS),
    ],
)
def test_an_impossible_move_is_a_fault_and_changes_nothing(state: State, event: Event) -> None:
    vhost = VhostState()
    vhost.now = state

    with pytest.raises(AssertionError, match=f"{event.name} in state {state.name}"):
        vhost.enter(event)

    assert vhost.now is state


class VhostMachine(RuleBasedStateMachine):
    """The actors of a vhost as flags: supervisor, store, the starter of its queues, and how they ended last."""

    def __init__(self) -> None:
        super().__init__()
        self.state = VhostState()
        self.vhost: Any = SimpleNamespace(
            name="v", state=self.state, store=SimpleNamespace(error=None), is_closing=False
        )
        self.outages = Outages(VirtualClock())
        self.state.on_change = lambda: self.outages.changed(self.vhost)
        self.has_supervisor = self.has_starter = self.is_open = self.was_open = False
        self.are_started = self.has_served = self.is_gone = self.is_down = False
        self.reason = ""
        self.waiting = self.told = 0
        self.calls: list[None] = []

    @precondition(lambda self: not self.has_supervisor and not self.is_gone)
    @rule()
    def supervisor_starts(self) -> None:
        self.has_supervisor, self.was_open, self.is_down = True, False, True
        self.state.enter(Event.STARTS)

    @precondition(lambda self: self.has_supervisor and not self.is_open)
    @rule()
    def starter_starts(self) -> None:
        self.has_starter, self.are_started, self.is_down = True, False, True
        self.state.enter(Event.STARTS)

    @precondition(lambda self: self.has_starter and not self.is_open)
    @rule()
    def store_opens(self) -> None:
        self.is_open = self.was_open = True
        self.state.enter(Event.STORE_OPENED)

    @precondition(lambda self: self.has_starter and self.is_open and not self.are_started)
    @rule()
    def queues_are_started(self) -> None:
        self.are_started, self.has_served, self.is_down = True, True, False
        self.told, self.waiting, self.reason = self.told + self.waiting, 0, ""
        self.state.enter(Event.QUEUES_STARTED)

    @rule()
    def part_ends(self) -> None:
        self.has_starter = self.has_starter and not self.is_open
        self.is_open = False
        self.state.enter(Event.PART_ENDED)

    @precondition(lambda self: self.has_supervisor)
    @rule(event=st.sampled_from(ENDS))
    def supervisor_ends(self, event: Event) -> None:
        is_machine = event is Event.MACHINE_FAILED
        self.has_supervisor = self.has_starter = self.is_open = False
        self.is_gone = event is Event.STOPPED
        if not self.is_gone:
            self.is_down, self.reason = True, "of the disk" if is_machine else "restart limit"
        self.vhost.store.error = OSError("of the disk") if is_machine else None
        self.told, self.waiting = self.told + self.waiting, 0
        self.state.enter(Event.PART_ENDED)
        self.state.enter(event)

    @rule()
    def wait(self) -> None:
        waits = self.has_supervisor and not (self.is_open and self.are_started)
        self.waiting, self.told = self.waiting + waits, self.told + (not waits)
        self.state.when_started(lambda: self.calls.append(None))

    @invariant()
    def the_state_says_what_the_actors_do(self) -> None:
        now = self.state.now
        assert (now is State.RUNNING) == (self.is_open and self.are_started)
        assert (now in UP) == self.is_open
        assert (now in ENDED) == (not self.has_supervisor)
        assert (now is State.OPENING) == (self.has_supervisor and not self.was_open)
        assert self.state.is_new == (not self.has_served)
        assert len(self.calls) == self.told

    @invariant()
    def an_outage_lasts_from_a_start_until_the_vhost_serves(self) -> None:
        outage = self.outages.by_vhost.get("v")
        assert (outage is not None) == self.is_down
        if outage is not None:
            assert self.reason in outage.reason
            assert (outage.next_try_s is not None) == (self.state.now is State.FAILED)


VhostMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TestVhost = VhostMachine.TestCase
