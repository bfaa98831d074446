"""Small ordered sets that cost nothing while they are empty and one pointer while they hold one item.

Most actors have one link (to their supervisor), no monitor and no timer, and there are 50,000 of
them; an empty set would cost 216 bytes each. A ``SmallSet`` is ``None``, the one item itself, or a dict
used as an ordered set (ordered, so that notices go out in the same order in every run). Items are
compared by identity or their own hash and are never dicts or None. ``add`` and ``discard`` return the
set to keep in the place of the one they got.
"""

from __future__ import annotations

from typing import Any, TypeAlias

SmallSet: TypeAlias = Any


def add(to: SmallSet, item: object) -> SmallSet:
    """Return the set with ``item`` in it."""
    if to is None or to is item:
        return item
    if type(to) is dict:
        to[item] = None
        return to
    return {to: None, item: None}


def discard(from_: SmallSet, item: object) -> SmallSet:
    """Return the set without ``item``."""
    if from_ is item:
        return None
    if type(from_) is dict:
        from_.pop(item, None)
        return from_ or None
    return from_


def contains(of: SmallSet, item: object) -> bool:
    """Whether ``item`` is in the set."""
    return of is item or (type(of) is dict and item in of)


def items(of: SmallSet) -> tuple[Any, ...]:
    """Return the items, oldest first."""
    if of is None:
        return ()
    return tuple(of) if type(of) is dict else (of,)
