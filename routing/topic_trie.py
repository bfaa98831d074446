"""The trie of a topic exchange: words with two wildcards.

Keys and patterns are split on ``.``; the empty string has no word at all, ``"."`` has two empty
ones. In a pattern ``*`` stands for exactly one word and ``#`` for any number, none included; in a
routing key they are ordinary words.

The trie is walked as a non-deterministic automaton, word by word, with the set of nodes that the
words so far can have led to. A ``#`` node stays in the set (it takes any word) and is entered
together with its parent (it may take none). So one pass costs words x live nodes, whatever the
patterns are; trying each ``#`` in turn (RabbitMQ's trie, most textbooks) costs words to the power
of the number of ``#``, which a client may choose.

Sets of nodes that were met are kept as *states*, with the ways between them: the automaton is made
deterministic as far as keys have used it, and a word whose way is known costs one look-up. All words
that no node of a state has a child for lead to the same state, its ``other``. A change of bindings
forgets the states. Keys and patterns are the clients' choice, so all topic exchanges of a vhost share one
``StatesRoom``. When the room is full, a walk still makes the states that it needs, and drops them at its end. To drop
older states in their place would cost more: a client that uses so many keys seldom sends the same one twice.

A client can bind patterns that make thousands of nodes live. The trie makes no states for such sets: the walk then
matches all patterns at once (``topic_positions.py``).

``#.#`` says the same as ``#``, and ``#.*`` the same as ``*.#``. The trie has the patterns with each run of
wildcards in one form, the ``*`` first and then at most one ``#``, so that patterns of equal meaning share nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from leveret.core.limits import TOPIC_STATES_MAX
from leveret.routing.direct import forget
from leveret.routing.topic_positions import KEPT_WORDS, Positions
from leveret.routing.work import FEW_KEYS, NEEDS_WALK, WALK_STEP_WORK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ONE_WORD: Final = b"*"
ANY_WORDS: Final = b"#"

STATE_NODES: Final = 256  # of a state that is kept
REFUSALS: Final = 4
_MATCH_WORK: Final = 5_000  # nodes that a match without a walk visits


class Node:
    """A node of the trie; ``children`` contains the nodes of the wildcards too."""

    __slots__ = ("any_words", "children", "is_any", "one_word", "targets")

    def __init__(self, is_any: bool = False) -> None:
        self.is_any = is_any
        self.children = _NO_CHILDREN
        self.one_word: Node | None = None
        self.any_words: Node | None = None
        self.targets = _NO_TARGETS

    def child(self, word: bytes) -> Node:
        """Return the child for ``word``, created if missing."""
        if word == ONE_WORD:
            if self.one_word is None:
                self.one_word = Node()
            return self.one_word
        if word == ANY_WORDS:
            if self.any_words is None:
                self.any_words = Node(is_any=True)
            return self.any_words
        node = self.children.get(word)
        if node is None:
            if self.children is _NO_CHILDREN:
                self.children = {}
            node = self.children[word] = Node()
        return node

    def add(self, target: Any) -> None:
        """Count a target."""
        if self.targets is _NO_TARGETS:
            self.targets = {}
        self.targets[target] = self.targets.get(target, 0) + 1

    def cut(self, word: bytes) -> None:
        """Remove the child for ``word``."""
        if word == ONE_WORD:
            self.one_word = None
        elif word == ANY_WORDS:
            self.any_words = None
        else:
            del self.children[word]

    @property
    def is_bare(self) -> bool:
        """Whether the node has neither children nor targets."""
        return not (
            self.targets or self.children or self.one_word is not None or self.any_words is not None
        )


# Shared by the many nodes that have none.
_NO_CHILDREN: Final[dict[bytes, Node]] = {}
_NO_TARGETS: Final[dict[Any, int]] = {}


class _State:
    """A set of nodes that the words so far can have led to.

    Attributes:
        is_kept: the trie holds it, and other states may lead to it; else the walk that made it drops it.
        targets: of all of its nodes; None until a key ends here.
        ways: where a word leads that at least one of the nodes has a child for.
        other: where any other word leads.
        always: ``other``, once it is known, when no node has children but for the wildcards.
    """

    __slots__ = ("always", "is_kept", "nodes", "other", "targets", "ways")

    def __init__(self, nodes: frozenset[Node]) -> None:
        self.nodes = nodes
        self.is_kept = False
        self.ways = _NO_WAYS
        self.other: _State | None = None
        self.always: _State | None = None
        self.targets: dict[Any, int] | None = None


_NO_WAYS: Final[dict[bytes, _State]] = {}
_NO_WORDS: Final[list[bytes]] = []
# The state of a match that exceeds its work; every word leads back to it.
_BEYOND: Final = _State(frozenset())
_BEYOND.always = _BEYOND
_BEYOND.targets = {}


class StatesRoom:
    """The room for the states of several tries.

    When it has been refused ``REFUSALS`` times as often as it is large, all tries forget their states: by then other
    keys may be in use. To fill it costs more than to do without, so that is done seldom.
    """

    __slots__ = ("_holders", "_refused", "_size", "left")

    def __init__(self, size: int = TOPIC_STATES_MAX) -> None:
        self.left = self._size = size
        self._holders: dict[Trie, int] = {}  # and how much each of them holds
        self._refused = 0

    def take(self, holder: Trie, amount: int) -> bool:
        """Take room; return whether there was so much."""
        if self.left < amount:
            self._refused += 1
            if self._refused >= REFUSALS * self._size:
                self._empty()
            if self.left < amount:
                return False
        self.left -= amount
        self._holders[holder] = self._holders.get(holder, 0) + amount
        return True

    def _empty(self) -> None:
        self._refused = 0
        for holder in list(self._holders):
            holder.forget_states()

    def give_back(self, holder: Trie) -> None:
        self.left += self._holders.pop(holder, 0)


class Trie:
    """The patterns of one exchange.

    Attributes:
        room: for its states.
    """

    __slots__ = ("_positions", "_start", "_states", "_visited", "room", "root")

    def __init__(self) -> None:
        self.room = StatesRoom()
        self.root = Node()
        self._visited = 0  # nodes, since the beginning of a match or of a slice of a walk
        self._start: _State | None = None
        self._states: dict[frozenset[Node], _State] = {}
        self._positions: Positions | None = None

    @property
    def states(self) -> int:
        """How many are kept."""
        return len(self._states)

    def forget_states(self) -> None:
        # States lead to each other: else only a collection frees them.
        for state in self._states.values():
            state.ways, state.other, state.always = _NO_WAYS, None, None
        self._start = self._positions = None
        self._states = {}
        self.room.give_back(self)

    def add(self, pattern: bytes, target: Any) -> None:
        """Count a target of a pattern."""
        node = self.root
        for word in folded(words_of(pattern)):
            node = node.child(word)
        node.add(target)
        self.forget_states()

    def remove(self, pattern: bytes, target: Any) -> None:
        """Count a target of a pattern once less, and remove the branch that only it used."""
        node = self.root
        way: list[tuple[Node, bytes]] = []
        for word in folded(words_of(pattern)):
            way.append((node, word))
            node = node.child(word)
        forget(node.targets, target)
        while way and node.is_bare:
            node, word = way.pop()
            node.cut(word)
        self.forget_states()

    def match(self, keys: Sequence[bytes], found: dict[Any, Any]) -> int:
        """Put the targets of all patterns that match any of the keys into ``found``.

        Returns:
            The work done, in units of ``work.py``; ``NEEDS_WALK`` when the keys take more than a match may do.
        """
        if len(keys) > FEW_KEYS:
            return NEEDS_WALK
        self._visited = visited = 0
        for key in keys:
            words = key.split(b".") if key else _NO_WORDS
            visited += len(words)
            state = self._start or self._started()
            for word in words:
                state = state.ways.get(word) or state.always or self._way(state, word)
            if state is _BEYOND:
                return NEEDS_WALK
            targets = state.targets
            if targets is None:
                targets = self._merge(state)
            if targets:
                found.update(targets)
        return visited + self._visited

    def walk(self, keys: Sequence[bytes], found: dict[Any, Any]) -> Iterator[int]:
        """Do the same in slices, and yield the work of each."""
        costly: list[list[bytes]] = []
        for key in keys:
            words = words_of(key)
            self._visited = 1
            state = self._start or self._started()
            for word in words:
                following = state.ways.get(word) or state.always or self._way(state, word)
                if following is _BEYOND:
                    costly.append(words)
                    break
                state = following
                self._visited += 1
                if self._visited >= WALK_STEP_WORK:
                    yield self._visited
                    self._visited = 0
            else:
                targets = self._merge(state) if state.targets is None else state.targets
                found.update(targets)
                self._visited += len(targets)
            yield self._visited
        if costly:
            if self._positions is None:
                self._positions = Positions(self.root)
            positions = self._positions
            while not positions.is_whole:
                yield positions.copy_some()
            yield from positions.walk(costly, found)
            if positions.size > KEPT_WORDS and self._positions is positions:
                self._positions = None

    def _merge(self, state: _State) -> dict[Any, int]:
        """Return the targets of all nodes of a state, and keep them if there is room."""
        targets = [node.targets for node in state.nodes if node.targets]
        # Only the keys matter; a single node's own dict is sufficient.
        if len(targets) == 1:
            state.targets = merged = targets[0]
        else:
            merged = {}
            for each in targets:
                merged.update(each)
            self._visited += len(merged)
            if state.is_kept and self.room.take(self, len(merged)):
                state.targets = merged
        return merged

    def _started(self) -> _State:
        live: set[Node] = set()
        _enter(self.root, live)
        state = self._state(live)
        if state.is_kept:
            self._start = state
        return state

    def _way(self, state: _State, word: bytes) -> _State:
        """Return the next state for a word, and keep the way; ``_BEYOND`` if that is too much work."""
        self._visited += len(state.nodes)
        if self._visited > _MATCH_WORK:
            return _BEYOND
        children = [child for node in state.nodes if (child := node.children.get(word)) is not None]
        if not children and state.other is not None:
            return state.other
        live = {node for node in state.nodes if node.is_any}
        for node in state.nodes:
            _enter(node.one_word, live)
        for child in children:
            _enter(child, live)
        if len(live) > STATE_NODES:
            return _BEYOND
        following = self._state(live)
        # The room may be emptied here; then no other state leads to ``state`` any more.
        if following.is_kept and state.is_kept and self.room.take(self, 1):
            if children:
                if state.ways is _NO_WAYS:
                    state.ways = {}
                state.ways[word] = following
            else:
                state.other = following
                if not any(node.children for node in state.nodes):
                    state.always = following
        return following

    def _state(self, live: set[Node]) -> _State:
        nodes = frozenset(live)
        state = self._states.get(nodes)
        if state is None:
            state = _State(nodes)
            if self.room.take(self, len(nodes) + 1):
                state.is_kept = True
                self._states[nodes] = state
        return state


def _enter(node: Node | None, live: set[Node]) -> None:
    """Put a node into the set, and the ``#`` nodes that follow it without a word between."""
    while node is not None:
        live.add(node)
        node = node.any_words


def folded(words: list[bytes]) -> list[bytes]:
    """Return the words of a pattern with each run of wildcards in one form: first ``*``, then one ``#``."""
    if ANY_WORDS not in words:
        return words
    result: list[bytes] = []
    is_any = False
    for word in words:
        if word == ANY_WORDS:
            is_any = True
            continue
        if is_any and word != ONE_WORD:
            result.append(ANY_WORDS)
            is_any = False
        result.append(word)
    if is_any:
        result.append(ANY_WORDS)
    return result


def words_of(key: bytes) -> list[bytes]:
    """Return the words of a key or pattern; the empty one has none."""
    return key.split(b".") if key else []
