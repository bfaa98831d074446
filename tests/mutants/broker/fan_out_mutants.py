"""Faults to plant in the fan-out to very many queues."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a batch that is never cut": Mutant(
        "Publisher.send", "len(queues) > WIDE_QUEUES and _takes_turns(...)", "False"
    ),
    "a slice that is sent again": Mutant(
        "FanOut.next_slice", "self.sent + count_max", "self.sent + count_max - 1"
    ),
    "a slice that is left out": Mutant("FanOut.is_complete", "self.sent", "self.sent + 1"),
    "a deleted queue is waited for": Mutant("FanOut.next_slice", "each.ended != 'deleted'", ""),
    "confirmed by the queues of the first slices": Mutant(
        "Publisher.continue_fan_out", "self.confirms.wait_also(...)", "pass"
    ),
    "confirmed before the last slice": Mutant(
        "Publisher.continue_fan_out",
        "if fan_out.is_complete:\n    self.fan_out = None\n    if ...: ...\n    if ...: ...",
        "if fan_out.is_complete: self.fan_out = None\nif True:\n    if ...: ...\n    if ...: ...",
    ),
    "never confirmed": Mutant(
        "Publisher.continue_fan_out",
        "self.confirms.gone(self._ref, ok=not fan_out.is_refused)",
        "pass",
    ),
    "a refusal is forgotten": Mutant(
        "Publisher.continue_fan_out", "not fan_out.is_refused", "True"
    ),
    "what goes nowhere is not returned": Mutant(
        "Publisher.continue_fan_out", "self._session.write_returns(...)", "pass"
    ),
    "all that was sent is returned": Mutant(
        "Publisher.continue_fan_out", "fan_out.has_reached |= ...", "pass"
    ),
    "later messages overtake the batch": Mutant(
        "Channel._handle_runs", "publisher.fan_out is not None", ""
    ),
    "the rest is forgotten": Mutant(
        "Channel._take_up",
        "publisher.fan_out is not None or (held and publisher.work_left <= 0)",
        "held and publisher.work_left <= 0",
    ),
    "the client is read meanwhile": Mutant(
        "Channel._block_reading", "self.held or self.publisher.fan_out is not None", "self.held"
    ),
    "the client is read again too soon": Mutant(
        "Channel._unblock_reading", "self.publisher.fan_out is None", ""
    ),
    "a connection is closed before the last slice": Mutant(
        "ChannelTable.close", "self._unhandled.update(...)", "pass"
    ),
    "all queues share what they owe": Mutant("Confirms.wait_also", "firsts.copy()", "firsts"),
    "queues of a later slice are not counted": Mutant("Confirms.wait_also", "len(queues)", "1"),
    "a queue that owed something owes no more": Mutant(
        "Confirms.wait_also", "owed |= firsts", "pass"
    ),
}
