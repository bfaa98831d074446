"""Faults to plant in the steps of writer threads."""

from __future__ import annotations

from mutants.planted import Mutant

_LOG, _THREADS, _KERNEL = "format/append_log.py", "threads/writers.py", "format/_kernel_py.py"

MUTANTS = {
    "steps without a sync": Mutant(
        _LOG, "            steps.append((descriptor, None, 0))\n", "            pass\n"
    ),
    "steps that sync inline records": Mutant(
        _LOG, "        if not job.is_inline:\n            steps", "        if True:\n            steps"
    ),
    "steps write over each other": Mutant(_LOG, "            at += len(buffer)\n", "            pass\n"),
    "steps go on where the last ones began": Mutant(
        _LOG, "        if self._ahead_bytes_max:\n            self._end +=", "        if False:\n            self._end +="
    ),
    "steps of a log that must go back": Mutant(
        _LOG, "if self._is_tainted or job.start != self._place:", "if False:"
    ),
    "steps of a log that may have failed": Mutant(
        _LOG, "if self._is_tainted or job.start != self._place:", "if job.start != self._place:"
    ),
    "steps behind the room": Mutant(
        _LOG, "if self._ahead_bytes_max and at > self._room_to:", "if False:"
    ),
    "room that is only allocated": Mutant(
        _LOG, "                file.write_at(_ZEROS[: self._room_to - at], at)\n", "                pass\n"
    ),
    "files that the last steps stand in are removed": Mutant(
        _LOG, "        self._made.clear()  # the last job stands\n        return steps", "        return steps"
    ),
    "steps that failed count as done": Mutant(_THREADS, "        elif error_no:", "        elif False:"),
    "a sync that failed in a step owes nothing": Mutant(
        _THREADS, "count == size - 1 and not job.is_inline", "False"
    ),
    "a write that failed in a step was a sync": Mutant(
        _THREADS, "count == size - 1 and not job.is_inline", "True"
    ),
    "what came behind a failed step is not done": Mutant(
        _THREADS, "        error = None\n", "        return\n"
    ),
    "what a step has met is not made good": Mutant(
        _THREADS, "            return False\n", "            return True\n"
    ),
    "logs are not told of their steps": Mutant(
        _THREADS, "                log.stepped(job)\n            self._syncs", "                pass\n            self._syncs"
    ),
    "one writer of two is waited for": Mutant(_THREADS, "self._notifier.expect(2)", "self._notifier.expect(1)"),
    "errors of one flush are the next one's": Mutant(
        _THREADS, "errors, self._errors = self._errors, []", "errors = self._errors"
    ),
    "the loop goes on listening": Mutant(
        _THREADS, "            self._loop.remove_reader(self._read_end)\n", "            pass\n"
    ),
    "the notifier writes for each": Mutant(
        _KERNEL, "            is_last = not self._left\n", "            is_last = True\n"
    ),
    "work is taken twice": Mutant(
        _KERNEL, "outcome, self._outcome = self._outcome, None", "outcome = self._outcome"
    ),
    "more work before the last was taken": Mutant(
        _KERNEL, "if self._is_awaited or self._is_closed:", "if self._is_closed:"
    ),
}  # fmt: skip
