"""Faults to plant in the end of a store."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a store is free while a thread has its files: self._flusher, ": Mutant(
        "MsgStore._close_files", "self._flusher", ""
    ),
    "a store is free while a thread has its files: self._collecting, ": Mutant(
        "MsgStore._close_files", "self._collecting", ""
    ),
    "a store is free while a thread has its files: self._reader, ": Mutant(
        "MsgStore._close_files", "self._reader", ""
    ),
    "a store that is stopped is killed": Mutant(
        "MsgStore._flushed", "self._index_threads.stop(...)", "self.kill(then)"
    ),
    "who kills a store that is being closed is not told": Mutant(
        "MsgStore.kill", "self._waiting.append(then)", "self._waiting = [then]"
    ),
    "nothing is flushed by a stop": Mutant(
        "MsgStore.stop", "self._flusher.stop(...)", "self._flushed(then)"
    ),
}
