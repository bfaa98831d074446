"""Free memory inside the interpreter's arenas, given back to the system; ``leveret serve`` only.

Small objects lie in arenas of 1 MiB, each of 64 *pools* for objects of one size. The interpreter gives an arena back
when none of its pools is in use. After a burst of work many arenas hold one or two objects that were made meanwhile and
stay: a timer, the answer of another client. Sixty of these keep 60 MiB.

Most pools of such an arena are free. The compiled kernel knows the arenas (``huge_pages.py``) and gives back the pages
of these pools, but for the first, which has the pool's head. A quarter stays so. The pool is marked as one of no size
class, as the interpreter marks a new one, so nothing that was in it is read again. An arena of which more than a
quarter is in use is left alone: its pages would no longer be huge ones.

That depends on how the interpreter keeps its pools, so it is done with Python 3.11 to 3.13, on Linux, and where each
pool of the arena looks as expected; elsewhere nothing is given back.

Turned down: ``PYTHONMALLOC=malloc`` (a tenth to a fifth more instructions per message).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leveret.core.compiled import compiled_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator


def give_back_in_steps() -> Iterator[None]:
    """Give memory of free pools back, and yield after each step, of one or two milliseconds."""
    kernel = _kernel()
    if kernel is None:
        return
    number = kernel.give_back_free_pools(0)
    while number:
        yield
        number = kernel.give_back_free_pools(number)


@cache
def _kernel() -> Any | None:
    return compiled_kernel("leveret.core.system", Path(__file__).parent)
