"""Faults to plant in routing."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a deleted queue still gets messages": Mutant(
        "router.py", "    if topology.leaving:\n        topology.drop_leaving(found)\n", ""
    ),
    "a walk finds deleted queues": Mutant(
        "router.py", "        topology.drop_leaving(found)\n        for", "        for"
    ),
    "a name is never free again": Mutant(
        "topology.py", "del self.leaving[target], self._places[place]", "del self.leaving[target]"
    ),
    "a step drops all bindings": Mutant(
        "topology.py", "                work -= binding.weight\n", "                pass\n"
    ),
    "an exchange's own bindings stay at their targets": Mutant(
        "topology.py", "            self._forget_at_target(outgoing)\n", ""
    ),
    "nodes are entered again by each word": Mutant(
        "topic_trie.py",
        "if any_words is not None and any_words not in entered:",
        "if any_words is not None:",
    ),
    "a # is entered once and forgotten": Mutant("topic_trie.py", "        stay += stay_too\n", ""),
    "a cached state outlives a word": Mutant(
        "topic_trie.py",
        "                if not any(node.children for node in state.nodes):\n                    state.always = following",
        "                state.always = following",
    ),
    "states are kept without room": Mutant(
        "topic_trie.py",
        "            if self.room.take(self, len(nodes) + 1):\n",
        "            if self.room.take(self, len(nodes) + 1) or True:\n",
    ),
    "the room for states stays full for good": Mutant(
        "topic_trie.py",
        "            if self._refused >= REFUSALS * self._size:\n",
        "            if False:\n",
    ),
    "work of a topic walk is not counted": Mutant(
        "topic_trie.py", "            yield _NODE_WORK * len(each)", "            yield 0"
    ),
    "a headers rule stays in the index": Mutant(
        "headers.py",
        "            if there is rule or not there:\n                del self._places[place]\n",
        "",
    ),
    "the last of several rules is lost": Mutant(
        "headers.py", "            if there is rule or not there:", "            if True:"
    ),
    "a hash leads to deleted queues": Mutant(
        "hashing.py", "if score > best and target not in leaving:", "if score > best:"
    ),
    "weights are forgotten": Mutant("hashing.py", "+ 1) * _SCALE) / weight", "+ 1) * _SCALE)"),
    "a second binding replaces the weight": Mutant(
        "hashing.py",
        "        if len(bindings) == 1:\n            self._weigh",
        "        if True:\n            self._weigh",
    ),
    "a slice of a hash forgets the best so far": Mutant(
        "hashing.py",
        "self._best(number, there, best, target)",
        "self._best(number, there, -inf, target)",
    ),
    "a random exchange forgets where a moved binding is": Mutant(
        "random_choice.py", "            self._places[last] = place\n", ""
    ),
    "a random exchange chooses deleted queues": Mutant(
        "random_choice.py", "            if target not in self.leaving:", "            if True:"
    ),
    "equal messages share a route behind a fanout": Mutant(
        "router.py", "        per_message = per_message or matcher.per_message\n", ""
    ),
    "one pair is sufficient for all": Mutant(
        "headers.py",
        "self.needs_one = not self.all_of or len(self.pairs) == 1",
        "self.needs_one = True",
    ),
}
