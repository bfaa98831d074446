from __future__ import annotations

import math

from leveret.amqp.tables import Table
from leveret.routing.bindings import QUEUE, Binding, identity_of


def binding(arguments: Table) -> Binding:
    return Binding("x", identity_of(QUEUE, "q", b"k", arguments), None)


def test_a_binding_gives_its_arguments_back_sorted_by_name() -> None:
    arguments: Table = {"b": ("S", b"text"), "a": ("F", {"z": ("t", True), "y": ("V", None)})}

    found = binding(arguments).arguments

    assert list(found.items()) == [("a", arguments["a"]), ("b", arguments["b"])]
    assert binding({}).arguments == {}


def test_the_order_of_arguments_is_no_part_of_the_identity_but_their_types_are() -> None:
    one: Table = {"a": ("I", 1), "b": ("I", 2)}
    assert identity_of(QUEUE, "q", b"", one) == identity_of(
        QUEUE, "q", b"", dict(reversed(one.items()))
    )
    assert identity_of(QUEUE, "q", b"", one) != identity_of(
        QUEUE, "q", b"", {"a": ("l", 1), "b": ("I", 2)}
    )
    nan: Table = {"a": ("d", math.nan)}
    assert identity_of(QUEUE, "q", b"", nan) == identity_of(QUEUE, "q", b"", {"a": ("d", math.nan)})
