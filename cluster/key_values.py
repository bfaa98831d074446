"""What the shared store holds: values by key, each with the revision of its last write."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from leveret.cluster.errors import ClusterError


class Row(NamedTuple):
    """A value in the store.

    Attributes:
        key: its name.
        value: the bytes.
        revision: of its last write; revisions count all writes to the store, so they increase for every key.
    """

    key: str
    value: bytes
    revision: int


class Swap(NamedTuple):
    """The outcome of a compare-and-swap.

    Attributes:
        is_done: whether the key had the revision that was expected, and was written.
        row: what the store has now under the key; None: nothing.
    """

    is_done: bool
    row: Row | None


OnRow: TypeAlias = Callable[[Row | ClusterError | None], None]
OnSwap: TypeAlias = Callable[[Swap | ClusterError], None]


class KeyValues(Protocol):
    """The store, asked without waiting. ``then`` is called exactly once, on the event loop's thread."""

    def read(self, key: str, then: OnRow) -> None:
        """Answer what is under a key, or why that is not known."""

    def swap(self, key: str, value: bytes | None, revision: int, then: OnSwap) -> None:
        """Answer the outcome of a compare-and-swap, or why it has none."""
