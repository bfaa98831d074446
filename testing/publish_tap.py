"""A tap on published messages: it sees messages when the broker has routed them.

While a tap is open, all publishes of the process go through it, which costs a little per run of messages; without an
open tap there is no cost.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Self

from leveret.broker.channel.publishing.publish import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.core.message import Message


_plain: Final = Publisher.publish
_open: Final[
    list[PublishTap]
] = []  # copied and changed in single steps: taps open in other threads
_turn: Final = threading.Lock()


class PublishTap:
    """Sees the messages published to one vhost of one broker, from ``open`` to ``close``.

    ``sees`` is called in the broker's thread with messages in the order of publishing. A run that the
    broker refuses (no such exchange, no permission) is not seen.
    """

    def __init__(
        self, is_meant: Callable[[Any], bool], sees: Callable[[list[Message]], None]
    ) -> None:
        self.is_meant = is_meant
        self.sees = sees

    def __enter__(self) -> Self:
        with _turn:
            _open.append(self)
            Publisher.publish = _tapped  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc_info: object) -> None:
        with _turn:
            _open[:] = [tap for tap in _open if tap is not self]
            if not _open:
                Publisher.publish = _plain  # type: ignore[method-assign]


def _tapped(
    self: Publisher, method: bytes, mode: int, messages: list[Message]
) -> list[Message] | None:
    rest: list[Message] | None = _plain(self, method, mode, messages)
    for tap in _open.copy():
        if tap.is_meant(self.vhost):
            tap.sees(messages[: len(messages) - len(rest or ())])
    return rest
