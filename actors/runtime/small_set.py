"""Small collections that cost nothing while they are empty and one pointer while they hold one.

Most actors have one link (to their supervisor), no monitor and no timer, and there are 50,000 of
them; an empty set would cost 216 bytes each. A ``Few`` is ``None``, the one item itself, or a dict
used as an ordered set (ordered, so that notices go out in the same order in every run). Items are
compared by identity or their own hash and are never dicts or None.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Few: TypeAlias = Any


def with_item(few: Few, item: object) -> Few:
    """Return the collection with ``item`` in it."""
    if few is None or few is item:
        return item
    if type(few) is dict:
        few[item] = None
        return few
    return {few: None, item: None}


def without_item(few: Few, item: object) -> Few:
    """Return the collection with no ``item`` in it."""
    if few is item:
        return None
    if type(few) is dict:
        few.pop(item, None)
        return few or None
    return few


def items_of(few: Few) -> tuple[Any, ...]:
    """Return the items, oldest first."""
    if few is None:
        return ()
    return tuple(few) if type(few) is dict else (few,)
