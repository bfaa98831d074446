"""The message, from the codec kernel through routing and queues back to the kernel.

A message is an exact tuple of three ``bytes`` objects, so the garbage collector untracks it at its
first young pass (``docs/decisions/0003-messages-are-tuples.md``):

``(origin, head, body)``

* ``origin``: exchange and routing key of the basic.publish, ``shortstr shortstr``.
  They are also the last two arguments of basic.deliver, basic.get-ok and basic.return.
  Of a message with ``BCC`` it is a ``BlindOrigin``, the same bytes with keys that nobody is shown.
* ``head``: payload of the content header frame, ``class:u16 weight:u16 body_size:u64 flags:u16
  properties``. Stored as received and forwarded unchanged.
* ``body``: the whole body, independent of its frames.

Messages of one publisher usually share the ``origin`` and often the ``head`` object; scanner and
encoders of the kernel use the identity to do work once per run.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Message: TypeAlias = tuple[bytes, ...]  # three; a tuple of a fixed length is no object to mypyc

ORIGIN: Final = 0
HEAD: Final = 1
BODY: Final = 2

LOST: Final[Message] = (b"", b"", b"")  # for a damaged content; a real origin is never empty


class BlindOrigin(bytes):
    """The ``origin`` of a message that was published with ``BCC``.

    Attributes:
        blind_keys: the keys of ``BCC``. Dead letters and delayed messages are routed by them, too.
    """

    blind_keys: tuple[bytes, ...]

    def __eq__(self, other: object) -> bool:
        return self.blind_keys == blind_keys_of(other) and bytes.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = bytes.__hash__


def origin_of(exchange: bytes, routing_key: bytes, *blind_keys: bytes) -> bytes:
    """Return the ``origin`` of a message from its parts, exchange and routing key of at most 255 bytes."""
    origin = b"%c%b%c%b" % (len(exchange), exchange, len(routing_key), routing_key)
    if not blind_keys:
        return origin
    blind = BlindOrigin(origin)
    blind.blind_keys = blind_keys
    return blind


def blind_keys_of(origin: object) -> tuple[bytes, ...]:
    """Return the keys of ``BCC`` that an ``origin`` has."""
    return origin.blind_keys if isinstance(origin, BlindOrigin) else ()


def exchange_and_key(origin: bytes) -> tuple[bytes, bytes]:
    """Return exchange and routing key of an ``origin``."""
    cut = 1 + origin[0]
    return origin[1:cut], origin[cut + 1 :]
