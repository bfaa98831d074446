"""Configuration, boot, the embedding API and the command line.

``broker`` is the broker as one object, ``control`` the socket through which ``management`` answers operators; the
folders are the other subjects, layers in the order of ``pyproject.toml``.

``Broker``, ``child_spec``, ``Config`` and ``Address`` can be imported from here; each is loaded when it is
first used, so that the command line starts without the broker.
May import every package but testing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leveret.core.addresses import Address
    from leveret.server.broker import Broker, child_spec
    from leveret.server.config.config import Config

__all__ = ["Address", "Broker", "Config", "child_spec"]

_NAMES = {
    "leveret.server.broker": ("Broker", "child_spec"),
    "leveret.core.addresses": ("Address",),
    "leveret.server.config.config": ("Config",),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
