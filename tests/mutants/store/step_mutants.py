"""Faults to plant in the steps of writer threads."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "steps without a sync": Mutant(
        "AppendLog.steps", "steps.append((descriptor, None, 0))", "pass"
    ),
    "steps that sync inline records": Mutant("AppendLog.steps", "not job.is_inline", "True"),
    "steps write over each other": Mutant("AppendLog.steps", "at += ...", "pass"),
    "steps go on where the last ones began": Mutant(
        "AppendLog.stepped", "self._ahead_bytes_max", "False"
    ),
    "steps of a log that must go back": Mutant(
        "AppendLog.steps", "self._is_tainted or job.start != self._place", "False"
    ),
    "steps of a log that may have failed": Mutant(
        "AppendLog.steps",
        "self._is_tainted or job.start != self._place",
        "job.start != self._place",
    ),
    "steps behind the room": Mutant(
        "AppendLog.steps", "self._ahead_bytes_max and at > self._room_to", "False"
    ),
    "room that is only allocated": Mutant("AppendLog._take_room", "file.write_at(...)", "pass"),
    "files that the last steps stand in are removed": Mutant(
        "AppendLog.steps", "self._made.clear()", ""
    ),
    "steps that failed count as done": Mutant(
        "_WriterThread.is_done",
        "if error_no: ...\nelse:\n    for log, job in work: ...\n    self._syncs.took(...)",
        "if False: ...\nelse:\n    for log, job in work: ...\n    self._syncs.took(...)",
    ),
    "a sync that failed in a step owes nothing": Mutant(
        "writers._finish_work", "count == size - 1 and (not job.is_inline)", "False"
    ),
    "a write that failed in a step was a sync": Mutant(
        "writers._finish_work", "count == size - 1 and (not job.is_inline)", "True"
    ),
    "what came behind a failed step is not done": Mutant(
        "writers._finish_work", "error = None", "return"
    ),
    "what a step has met is not made good": Mutant(
        "_WriterThread.is_done", "self._again = ...\nreturn False", "self._again = ...\nreturn True"
    ),
    "logs are not told of their steps": Mutant("_WriterThread.is_done", "log.stepped(job)", "pass"),
    "one writer of two is waited for": Mutant(
        "WriterThreads.submit", "self._notifier.expect(2)", "self._notifier.expect(1)"
    ),
    "errors of one flush are the next one's": Mutant(
        "WriterThreads._notified", "errors, self._errors = ...", "errors = self._errors"
    ),
    "the loop goes on listening": Mutant(
        "WriterThreads.end", "self._loop.remove_reader(...)", "pass"
    ),
    "the notifier writes for each": Mutant("Notifier.done", "not self._left", "True"),
    "work is taken twice": Mutant(
        "Caller.take_outcome", "outcome, self._outcome = ...", "outcome = self._outcome"
    ),
    "more work before the last was taken": Mutant(
        "Caller._submit", "self._is_awaited or self._is_closed", "self._is_closed"
    ),
}
