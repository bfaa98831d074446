"""A variable queue of which tests change methods. The class itself may be compiled and has no subclasses then."""

from __future__ import annotations

from abc import update_abstractmethods
from typing import TYPE_CHECKING, Any

from leveret.queue_backing.api import BackingQueue
from leveret.queue_backing.variable.queue import VariableQueue

if TYPE_CHECKING:
    _Queue = VariableQueue
else:
    _Queue = BackingQueue


class OpenQueue(_Queue):
    """Hands every call on to another queue, by default one of its own, and has the other's attributes."""

    def __init__(self, queue: Any = None) -> None:
        self.wrapped = queue or VariableQueue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


def _hand_on(name: str) -> Any:
    def call(queue: OpenQueue, *args: Any, **options: Any) -> Any:
        return getattr(queue.wrapped, name)(*args, **options)

    return call


for _name, _value in vars(VariableQueue).items():
    if callable(_value) and not _name.startswith("_"):
        setattr(OpenQueue, _name, _hand_on(_name))  # so that ``super()`` finds it
update_abstractmethods(OpenQueue)
