"""An object that others hold is emptied: of its slots, its dict and those of its bases; then it is filled again."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from leveret.core.system import fields
from leveret.core.system.fields import clear_fields


class Base:
    __slots__ = ("__weakref__", "one", "unset")


class Slots(Base):
    __slots__ = ("other",)


class Open(Base):
    pass


class Held:
    pass


@pytest.mark.parametrize("clear", [clear_fields, fields._clear_in_python], ids=["chosen", "python"])
@pytest.mark.parametrize("kind", [Slots, Open])
def test_an_emptied_object_holds_nothing_and_takes_new_values(kind: Any, clear: Any) -> None:
    emptied, held, other = kind(), Held(), Held()
    emptied.one, emptied.other = held, other
    watched = [weakref.ref(held), weakref.ref(other)]
    del held, other

    clear(emptied)

    assert [each() for each in watched] == [None, None]
    assert not hasattr(emptied, "one")
    assert not hasattr(emptied, "other")
    emptied.one = emptied.other = 7
    assert (emptied.one, emptied.other) == (7, 7)
    clear(emptied)
    clear(emptied)


def test_a_cycle_ends_without_the_collector() -> None:
    one, other = Open(), Slots()
    one.one, other.other = other, one
    watched = weakref.ref(other)

    clear_fields(one)
    del one, other

    assert watched() is None
