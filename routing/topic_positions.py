"""The patterns of a trie as bit masks, a bit for each word: a word of a key is matched with all patterns at once.

A client can bind patterns that make thousands of nodes of the trie live at each word of a key. Here the patterns lie in
a row, each with a bit for each of its words and a bit for its end. A bit is live when the words so far can have led to
its position. At the next word of the key, live bits of this word and of ``*`` move on by one. Live bits of ``#`` stay,
and make the bit behind them live. These are a few operations on long integers (Baeza-Yates and Gonnet's bit-parallel
automaton): with 1,500 patterns of 120 words a word of a key takes 20 us; node by node it took 25 ms.

The patterns are copied in slices. A copy has all patterns that are bound during all of the copying; a change of
bindings drops the copy.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from leveret.routing.work import WALK_STEP_WORK

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

KEPT_WORDS: Final = 1_000_000  # a copy with more words is dropped after the message
_SLICE: Final = 500  # positions or patterns between two yields
_PLACE_WORK: Final = 2
_NODE_WORK: Final = 5  # plus the work of the words of a pattern that ends there
_BITS_PER_WORK: Final = 500
_MASK_BYTES_MAX: Final = 4 * 1024 * 1024  # of the cached masks

# No word has a dot.
_BEGINNINGS: Final = b"."
_ONE_WORD: Final = b".*"
_ANY_WORDS: Final = b".#"

Words: TypeAlias = list[bytes]


class Node(Protocol):
    """A node of the trie."""

    children: dict[bytes, Any]
    one_word: Any
    any_words: Any
    targets: dict[Any, int]


class Positions:
    """A copy of the patterns of a trie, which walks fill before they use it.

    Attributes:
        size: the number of bits.
        is_whole: the copy has all patterns.
    """

    __slots__ = ("_ends", "_mask_bytes", "_masks", "_places", "_way", "is_whole", "size")

    def __init__(self, root: Node) -> None:
        self.size = 0
        self.is_whole = False
        # The path to the node that is being copied: each node, its words, and its children that are not yet copied.
        self._way: list[tuple[Node, tuple[bytes, ...], Words]] = []
        self._places: dict[bytes, array[int]] = {}  # the positions of each word
        self._ends: list[tuple[int, Node]] = []
        self._masks: dict[bytes, int] = {}
        self._mask_bytes = 0
        self._enter(root, ())

    def copy_some(self) -> int:
        """Copy more of the patterns; return the work."""
        work = 0
        while self._way and work < WALK_STEP_WORK:
            node, words, below = self._way[-1]
            if below:
                word = below.pop()
                child = _child(node, word)
                work += _NODE_WORK if child is None else self._enter(child, (*words, word))
            else:
                self._way.pop()
        self.is_whole = not self._way
        return work

    def _enter(self, node: Node, words: tuple[bytes, ...]) -> int:
        below = list(node.children)
        if node.one_word is not None:
            below.append(_ONE_WORD)
        if node.any_words is not None:
            below.append(_ANY_WORDS)
        self._way.append((node, words, below))
        if not node.targets:
            return _NODE_WORK
        at = self.size
        self._note(_BEGINNINGS, at)
        for word in words:
            self._note(word, at)
            at += 1
        self._ends.append((at, node))
        self.size = at + 1
        return _NODE_WORK + _PLACE_WORK * len(words)

    def _note(self, word: bytes, place: int) -> None:
        places = self._places.get(word)
        if places is None:
            places = self._places[word] = array("Q")
        places.append(place)

    def walk(self, keys: list[Words], found: dict[Any, Any]) -> Iterator[int]:
        """Put the targets of the patterns that match any of the keys into ``found``; yield the work of each slice."""
        any_words = yield from self._mask(_ANY_WORDS)
        one_word = yield from self._mask(_ONE_WORD)
        beginnings = yield from self._mask(_BEGINNINGS)
        beginnings |= (beginnings & any_words) << 1
        reached = 0
        for words in keys:
            live = beginnings
            for word in words:
                takes = yield from self._mask(word)
                live = (live & (takes | one_word)) << 1 | live & any_words
                live |= (live & any_words) << 1
                yield 1 + self.size // _BITS_PER_WORK
                if not live:
                    break
            reached |= live
        bits = reached.to_bytes(self.size // 8 + 1, "little")
        for start in range(0, len(self._ends), _SLICE):
            work = 0
            for place, node in self._ends[start : start + _SLICE]:
                work += 1
                if bits[place >> 3] >> (place & 7) & 1:
                    found.update(node.targets)
                    work += len(node.targets)
            yield work

    def _mask(self, word: bytes) -> Generator[int, None, int]:
        """Return the bits of a word."""
        mask = self._masks.get(word)
        if mask is not None:
            return mask
        places = self._places.get(word)
        if places is None:
            return 0
        size_bytes = self.size // 8 + 1
        bits = bytearray(size_bytes)
        for start in range(0, len(places), _SLICE):
            for place in places[start : start + _SLICE]:
                bits[place >> 3] |= 1 << (place & 7)
            yield _PLACE_WORK * _SLICE
        mask = int.from_bytes(bits, "little")
        if self._mask_bytes + size_bytes > _MASK_BYTES_MAX:
            self._masks.clear()
            self._mask_bytes = 0
        self._masks[word] = mask
        self._mask_bytes += size_bytes
        return mask


def _child(node: Node, word: bytes) -> Node | None:
    child: Node | None
    if word == _ONE_WORD:
        child = node.one_word
    elif word == _ANY_WORDS:
        child = node.any_words
    else:
        child = node.children.get(word)
    return child
