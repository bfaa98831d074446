"""Faults to plant in routing."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a deleted queue still gets messages": Mutant("route", "if topology.leaving: ...", ""),
    "a walk finds deleted queues": Mutant("router._walk", "topology.drop_leaving(found)", ""),
    "a name is never free again": Mutant("Topology.step", "self._places[place]", ""),
    "a step drops all bindings": Mutant("Topology.step", "work -= binding.weight", "pass"),
    "an exchange's own bindings stay at their targets": Mutant(
        "Topology._drop_one", "self._forget_at_target(outgoing)", ""
    ),
    "a # takes one word": Mutant(
        "Positions.walk",
        "(live & (takes | one_word)) << 1 | live & any_words",
        "(live & (takes | one_word)) << 1",
    ),
    "a # takes a word at least": Mutant(
        "Positions.walk", "beginnings |= (beginnings & any_words) << 1", ""
    ),
    "a copy of the patterns outlives them": Mutant(
        "Trie.forget_states", "self._start = self._positions = None", "self._start = None"
    ),
    "a cached state outlives a word": Mutant(
        "Trie._way", "if not any(...): ...", "state.always = following"
    ),
    "states are kept without room": Mutant(
        "Trie._state", "self.room.take(...)", "self.room.take(...) or True"
    ),
    "the room for states stays full for good": Mutant(
        "StatesRoom.take", "self._refused >= REFUSALS * self._size", "False"
    ),
    "work of a topic walk is not counted": Mutant(
        "Positions.walk", "1 + self.size // _BITS_PER_WORK", "0"
    ),
    "a headers rule stays in the index": Mutant(
        "HeadersMatcher.remove", "if rules_at is rule or not rules_at: ...", ""
    ),
    "the last of several rules is lost": Mutant(
        "HeadersMatcher.remove", "rules_at is rule or not rules_at", "True"
    ),
    "a hash leads to deleted queues": Mutant(
        "_HashMatcher._best", "score > best and target not in leaving", "score > best"
    ),
    "weights are forgotten": Mutant("_HashMatcher._best", "log(...) / weight", "log(...)"),
    "a second binding replaces the weight": Mutant(
        "ConsistentHashMatcher.add", "len(bindings) == 1", "True"
    ),
    "a slice of a hash forgets the best so far": Mutant(
        "_HashMatcher.walk", "self._best(...)", "self._best(number, there, -inf, target)"
    ),
    "a random exchange forgets where a moved binding is": Mutant(
        "RandomMatcher.remove", "self._places[last] = place", ""
    ),
    "a random exchange chooses deleted queues": Mutant(
        "RandomMatcher.match", "target not in self.leaving", "True"
    ),
    "equal messages share a route behind a fanout": Mutant("router._walk", "per_message = ...", ""),
    "one pair is sufficient for all": Mutant(
        "_Rule.__init__", "not self.all_of or len(...) == 1", "True"
    ),
}
