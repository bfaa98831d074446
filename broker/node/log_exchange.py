"""Lines of the log as messages of the exchange ``amq.rabbitmq.log`` (RabbitMQ's ``rabbit_logger_exchange_h``).

The routing key is the level, the body the line as in the log file. Lines wait here for the publisher of the node's own
messages; their number is bounded, and further lines are dropped and counted. The lines of that publisher itself are not
published, so that no line causes another for ever.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from leveret.amqp.properties import Properties, head_of
from leveret.broker.mail import OwnMessage
from leveret.broker.node import own_publisher
from leveret.core.limits import LOG_EXCHANGE_LINES_MAX

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

LOG_EXCHANGE: Final = "amq.rabbitmq.log"


class LogExchange(logging.Handler):
    """Takes lines on any thread, and returns them as messages on the event loop.

    Args:
        vhost: in which the exchange is.
        node: the node's name, for a header.
        loop: on which ``wake`` is called when there are lines.

    Attributes:
        dropped: lines that were not taken.
    """

    def __init__(
        self, vhost: str, node: str, loop: AbstractEventLoop, wake: Callable[[], None]
    ) -> None:
        super().__init__()
        self.dropped = 0
        self._vhost = vhost
        self._loop = loop
        self._wake = wake
        self._headers = {"node": ("S", node.encode("utf-8", "surrogateescape"))}
        self._lines: deque[tuple[str, int, str]] = deque()  # level, time in s, text

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; called with the handler's lock."""
        if record.name == own_publisher.__name__:
            return
        if len(self._lines) >= LOG_EXCHANGE_LINES_MAX:
            self.dropped += 1
            return
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a line of the log never fails its caller
            self.handleError(record)
            return
        self._lines.append((record.levelname.lower(), int(record.created), text))
        if len(self._lines) == 1:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def next(self) -> OwnMessage | None:
        """Return the next line as a message; None: there is none."""
        try:
            level, time_s, text = self._lines.popleft()
        except IndexError:
            return None
        body = text.encode("utf-8", "backslashreplace")
        properties = Properties(content_type="text/plain", headers=self._headers, timestamp=time_s)
        head = head_of(properties, len(body))
        return OwnMessage(self._vhost, LOG_EXCHANGE, level.encode(), head, body)
