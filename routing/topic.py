"""Topic exchanges: a trie of words with two wildcards.

Keys and patterns are split on ``.``; the empty string has no word at all, ``"."`` has two empty
ones. In a pattern ``*`` stands for exactly one word and ``#`` for any number, none included; in a
routing key they are ordinary words.

The trie is walked as a non-deterministic automaton, word by word, with the set of nodes that the
words so far can have led to. A ``#`` node stays in the set (it takes any word) and is entered
together with its parent (it may take none). So one pass costs words x live nodes, whatever the
patterns are; trying each ``#`` in turn (RabbitMQ's trie, most textbooks) costs words to the power
of the number of ``#``, which a client may choose.
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


class _Node:
    """What one word of a pattern led to; ``children`` holds the wildcards' too."""

    __slots__ = ("any_words", "children", "is_any", "one_word", "targets")

    def __init__(self, is_any: bool = False) -> None:
        self.is_any = is_any
        self.children: dict[bytes, _Node] = {}
        self.one_word: _Node | None = None
        self.any_words: _Node | None = None
        self.targets: dict[Any, int] = {}

    def child(self, word: bytes) -> _Node:
        """Return the node behind ``word``, made when it is new."""
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
        """Forget the child behind ``word``."""
        if word == ONE_WORD:
            self.one_word = None
        elif word == ANY_WORDS:
            self.any_words = None
        else:
            del self.children[word]

    @property
    def is_bare(self) -> bool:
        """Whether nothing hangs on it any more."""
        return not (
            self.targets or self.children or self.one_word is not None or self.any_words is not None
        )


class TopicMatcher:
    """The trie of one exchange."""

    __slots__ = ("_root",)

    uses_headers: ClassVar[bool] = False

    def __init__(self) -> None:
        self._root = _Node()

    @staticmethod
    def check(key: bytes, arguments: Table) -> None:
        """Accept every binding; arguments mean nothing here."""

    def add(self, binding: Binding) -> None:
        """Take a new binding in."""
        node = self._root
        for word in words_of(binding.key):
            node = node.child(word)
        node.targets[binding.target] = node.targets.get(binding.target, 0) + 1

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added, and the branch that was there for it alone."""
        node = self._root
        way: list[tuple[_Node, bytes]] = []
        for word in words_of(binding.key):
            way.append((node, word))
            node = node.child(word)
        forget(node.targets, binding.target)
        while way and node.is_bare:
            node, word = way.pop()
            node.cut(word)

    def match(self, keys: Iterable[bytes], headers: Table | None, found: dict[Any, Any]) -> None:
        """Put the targets of all patterns that match any of the keys into ``found``."""
        for key in keys:
            for node in self._reached(key):
                if node.targets:
                    found.update(node.targets)

    def _reached(self, key: bytes) -> Iterable[_Node]:
        live: dict[_Node, None] = {}
        _enter(self._root, live)
        for word in words_of(key):
            later: dict[_Node, None] = {}
            for node in live:
                if node.is_any:
                    later[node] = None
                child = node.children.get(word)
                if child is not None:
                    later[child] = None
                    if child.any_words is not None:
                        _enter(child.any_words, later)
                if node.one_word is not None:
                    _enter(node.one_word, later)
            if not later:
                return later
            live = later
        return live


def _enter(node: _Node | None, live: dict[_Node, None]) -> None:
    while node is not None:
        live[node] = None
        node = node.any_words


def words_of(key: bytes) -> list[bytes]:
    """Return the words of a key or pattern; the empty one has none."""
    return key.split(b".") if key else []
