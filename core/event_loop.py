"""The event loop of ``leveret serve``.

uvloop where it is installed, asyncio otherwise; ``pip install leveret`` brings uvloop where it has wheels.
``LEVERET_LOOP`` = ``uvloop`` or ``asyncio`` chooses, as ``LEVERET_KERNEL`` does for the kernels (``core/compiled.py``).
An embedded broker runs on its service's event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, TypeAlias

from leveret.core.errors import ConfigError

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

UVLOOP: Final = "uvloop"
ASYNCIO: Final = "asyncio"
_VARIABLE: Final = "LEVERET_LOOP"


def loop_factory() -> LoopFactory:
    """Return the factory of the event loop.

    Raises:
        ConfigError: LEVERET_LOOP has another value, or demands uvloop and uvloop is not installed.
    """
    wanted = os.environ.get(_VARIABLE, "")
    if wanted not in {"", UVLOOP, ASYNCIO}:
        raise ConfigError(f"{_VARIABLE} is {wanted!r}, not {UVLOOP} or {ASYNCIO}")
    if wanted == ASYNCIO:
        return asyncio.new_event_loop
    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError as error:
        if wanted:
            raise ConfigError(f"{_VARIABLE} is {UVLOOP}: {error}; pip install uvloop") from error
        return asyncio.new_event_loop
    factory: LoopFactory = uvloop.new_event_loop
    return factory


def name_of(loop: asyncio.AbstractEventLoop) -> str:
    """Return the package of an event loop: ``uvloop``, ``asyncio`` or another."""
    return type(loop).__module__.partition(".")[0]
