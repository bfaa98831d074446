"""Faults to plant in the end of a store."""

from __future__ import annotations

from mutants.planted import Mutant

CLOSED = "for part in (self._flusher, self._collecting, self._reader, self.transients):\n            part.close()"

MUTANTS = {
    f"a store is free while a thread has its files: {part}": Mutant(
        "store.py", CLOSED, CLOSED.replace(part, "")
    )
    for part in ("self._flusher, ", "self._collecting, ", "self._reader, ")
} | {
    "a store that is stopped is killed": Mutant(
        "store.py", "self._index_threads.stop(lambda: self.kill(then))", "self.kill(then)"
    ),
    "who kills a store that is being closed is not told": Mutant(
        "store.py",
        "                self._waiting.append(then)",
        "                self._waiting = [then]",
    ),
    "nothing is flushed by a stop": Mutant(
        "store.py", "self._flusher.stop(lambda: self._flushed(then))", "self._flushed(then)"
    ),
}
