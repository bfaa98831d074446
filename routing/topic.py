"""Topic exchanges: a trie of words with two wildcards.

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
forgets the states, and so does their size, since keys and patterns are the clients' choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from leveret.routing.direct import forget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding

ONE_WORD: Final = b"*"
ANY_WORDS: Final = b"#"

STATES_ROOM: Final = 100_000  # states with their nodes and targets, and ways; some 10 MB


class _Node:
    """A node of the trie; ``children`` contains those of the wildcards too."""

    __slots__ = ("any_words", "children", "is_any", "one_word", "targets")

    def __init__(self, is_any: bool = False) -> None:
        self.is_any = is_any
        self.children: dict[bytes, _Node] = {}
        self.one_word: _Node | None = None
        self.any_words: _Node | None = None
        self.targets: dict[Any, int] = {}

    def child(self, word: bytes) -> _Node:
        """Return the child for ``word``, created if missing."""
        if word == ONE_WORD:
            if self.one_word is None:
                self.one_word = _Node()
            return self.one_word
        if word == ANY_WORDS:
            if self.any_words is None:
                self.any_words = _Node(is_any=True)
            return self.any_words
        node = self.children.get(word)
        if node is None:
            node = self.children[word] = _Node()
        return node

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


class _State:
    """A set of nodes that the words so far can have led to.

    Attributes:
        targets: of all of its nodes.
        ways: where a word leads that at least one of the nodes has a child for.
        other: where any other word leads.
        always: ``other``, once it is known, when no node has children but for the wildcards.
    """

    __slots__ = ("always", "nodes", "other", "targets", "ways")

    def __init__(self, nodes: frozenset[_Node]) -> None:
        self.nodes = nodes
        self.ways = _NO_WAYS
        self.other: _State | None = None
        self.always: _State | None = None
        targets = [node.targets for node in nodes if node.targets]
        # Only the keys matter; a single node's own dict is sufficient.
        self.targets = targets[0] if len(targets) == 1 else _merged(targets)


def _merged(targets: list[dict[Any, int]]) -> dict[Any, int]:
    merged: dict[Any, int] = {}
    for each in targets:
        merged.update(each)
    return merged


_NO_WAYS: Final[dict[bytes, _State]] = {}


class TopicMatcher:
    """The trie of one exchange."""

    __slots__ = ("_room", "_root", "_start", "_states")

    uses_headers: ClassVar[bool] = False

    def __init__(self) -> None:
        self._root = _Node()
        self._forget_states()

    def _forget_states(self) -> None:
        self._start: _State | None = None
        self._states: dict[frozenset[_Node], _State] = {}
        self._room = STATES_ROOM

    @staticmethod
    def check(key: bytes, arguments: Table) -> None:
        """Accept every binding; arguments have no effect."""

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in words_of(binding.key):
            node = node.child(word)
        node.targets[binding.target] = node.targets.get(binding.target, 0) + 1
        self._forget_states()

    def remove(self, binding: Binding) -> None:
        """Remove a binding, and the branch that only it used."""
        node = self._root
        way: list[tuple[_Node, bytes]] = []
        for word in words_of(binding.key):
            way.append((node, word))
            node = node.child(word)
        forget(node.targets, binding.target)
        while way and node.is_bare:
            node, word = way.pop()
            node.cut(word)
        self._forget_states()

    def match(self, keys: Iterable[bytes], headers: Table | None, found: dict[Any, Any]) -> None:
        """Put the targets of all patterns that match any of the keys into ``found``."""
        for key in keys:
            state = self._start or self._started()
            for word in words_of(key):
                state = state.ways.get(word) or state.always or self._way(state, word)
            if state.targets:
                found.update(state.targets)

    def _started(self) -> _State:
        live: set[_Node] = set()
        _enter(self._root, live)
        self._start = self._state(live)
        return self._start

    def _way(self, state: _State, word: bytes) -> _State:
        """Return the next state for a word, and cache it."""
        children = [child for node in state.nodes if (child := node.children.get(word)) is not None]
        if not children and state.other is not None:
            return state.other
        live = {node for node in state.nodes if node.is_any}
        for node in state.nodes:
            _enter(node.one_word, live)
        for child in children:
            _enter(child, live)
        if self._room <= 0:
            self._forget_states()  # except ``state``, which this walk continues with
        following = self._state(live)
        if children:
            if state.ways is _NO_WAYS:
                state.ways = {}
            state.ways[word] = following
        else:
            state.other = following
            if not any(node.children for node in state.nodes):
                state.always = following
        return following

    def _state(self, live: set[_Node]) -> _State:
        nodes = frozenset(live)
        state = self._states.get(nodes)
        if state is None:
            state = self._states[nodes] = _State(nodes)
            self._room -= len(nodes) + len(state.targets)
        self._room -= 1
        return state


def _enter(node: _Node | None, live: set[_Node]) -> None:
    """Put a node into the set, and the ``#`` nodes that follow it without a word between."""
    while node is not None:
        live.add(node)
        node = node.any_words


def words_of(key: bytes) -> list[bytes]:
    """Return the words of a key or pattern; the empty one has none."""
    return key.split(b".") if key else []
