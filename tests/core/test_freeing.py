"""Large containers are freed in slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.core.freeing import FREED_ITEMS, free_in_slices


class Loop(list[Callable[[], Any]]):
    """Keeps the callbacks that are due in the next iteration."""

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Any:
        assert delay_s == 0.0
        self.append(lambda: callback(*args))


def test_large_containers_are_emptied_a_slice_in_each_iteration() -> None:
    loop = Loop()
    sizes = [FREED_ITEMS // 2, 0, 2 * FREED_ITEMS, 1]
    containers = [dict.fromkeys(range(size)) for size in sizes]

    total = sum(sizes)

    free_in_slices(list(containers), loop)
    left = [sum(map(len, containers))]
    while loop:
        loop.pop()()
        left.append(sum(map(len, containers)))

    assert left == [total - FREED_ITEMS, total - 2 * FREED_ITEMS, 0]
