"""Topic exchanges: keys and patterns of words, with two wildcards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.routing.exchange_type import Head, Matcher
from leveret.routing.topic_trie import StatesRoom, Trie

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leveret.amqp.tables import Table
    from leveret.routing.bindings import Binding


class TopicMatcher(Matcher):
    """The bindings of one exchange, in a trie, which is of a module that may be compiled."""

    __slots__ = ("trie",)

    def __init__(self, arguments: Table | None = None) -> None:
        super().__init__(arguments)
        self.trie = Trie()

    def share(self, room: StatesRoom) -> None:
        """Take the room for the trie's states from that of the vhost."""
        self.trie.room = room

    def retire(self) -> None:
        """The exchange is deleted: take no more of the vhost's room, which would keep the trie alive."""
        self.trie.forget_states()
        self.trie.room = StatesRoom()

    def add(self, binding: Binding) -> None:
        self.trie.add(binding.key, binding.target)

    def remove(self, binding: Binding) -> None:
        self.trie.remove(binding.key, binding.target)

    def match(self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]) -> int:
        return self.trie.match(keys, found)

    def walk(
        self, keys: Sequence[bytes], head: Head | None, found: dict[Any, Any]
    ) -> Iterator[int]:
        return self.trie.walk(keys, found)
