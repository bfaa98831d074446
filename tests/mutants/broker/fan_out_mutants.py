"""Faults to plant in the fan-out to very many queues."""

from __future__ import annotations

from mutants.planted import Mutant

_PUBLISH, _FAN_OUT, _TRAFFIC = (
    "channel/publishing/publish.py",
    "channel/publishing/fan_out.py",
    "channel/traffic.py",
)
_CONFIRMS = "channel/confirms.py"

MUTANTS = {
    "a batch that is never cut": Mutant(
        _PUBLISH,
        "if len(queues) > WIDE_QUEUES and _takes_turns(len(queues), count):",
        "if False:",
    ),
    "a slice that is sent again": Mutant(
        _FAN_OUT, "self.sent, self.sent + count_max", "self.sent, self.sent + count_max - 1"
    ),
    "a slice that is left out": Mutant(
        _FAN_OUT, "return self.sent >= len", "return self.sent + 1 >= len"
    ),
    "a deleted queue is waited for": Mutant(_FAN_OUT, ' if each.ended != "deleted"', ""),
    "confirmed by the queues of the first slices": Mutant(
        _PUBLISH, "self.confirms.wait_also(self._ref, reached)", "pass"
    ),
    "confirmed before the last slice": Mutant(
        _PUBLISH,
        "            self.fan_out = None\n            if batch",
        "            self.fan_out = None\n        if True:\n            if batch",
    ),
    "never confirmed": Mutant(
        _PUBLISH, "self.confirms.gone(self._ref, ok=not fan_out.is_refused)", "pass"
    ),
    "a refusal is forgotten": Mutant(_PUBLISH, "ok=not fan_out.is_refused", "ok=True"),
    "what goes nowhere is not returned": Mutant(
        _PUBLISH,
        "                self._session.write_returns(self._number, batch.messages)",
        "                pass",
    ),
    "all that was sent is returned": Mutant(
        _PUBLISH, "fan_out.has_reached |= bool(reached)", "pass"
    ),
    "later messages overtake the batch": Mutant(
        _TRAFFIC,
        "                or publisher.fan_out is not None\n                or (publisher.work_left",
        "                or (publisher.work_left",
    ),
    "the rest is forgotten": Mutant(
        _TRAFFIC, "if publisher.fan_out is not None or (held and", "if (held and"
    ),
    "the client is read meanwhile": Mutant(
        _TRAFFIC,
        "if not self._blocks_reading and (self.held or self._publisher.fan_out is not None):",
        "if not self._blocks_reading and self.held:",
    ),
    "the client is read again too soon": Mutant(
        _TRAFFIC,
        "if self._blocks_reading and not self.held and self._publisher.fan_out is None:",
        "if self._blocks_reading and not self.held:",
    ),
    "a connection is closed before the last slice": Mutant(
        "connection/channel_table.py", "self._unhandled.update(self._slots)", "pass"
    ),
    "all queues share what they owe": Mutant(_CONFIRMS, "= firsts.copy()", "= firsts"),
    "queues of a later slice are not counted": Mutant(
        _CONFIRMS, "owing += len(queues)", "owing += 1"
    ),
    "a queue that owed something owes no more": Mutant(
        _CONFIRMS, "                owed |= firsts\n", "                pass\n"
    ),
}
