"""The codec kernel: its contract, and the choice of the implementation.

The kernel is the only code that handles single frames, and single fields of tables. It cuts the bytes of a socket into
*runs*, and encodes deliveries. It knows no route, vhost, exchange or open channel. Two modules implement it:
``leveret.amqp._kernel_py`` (struct, prediction of the next message) and ``leveret.amqp._kernel_c``
(Cython, optional); ``leveret.core.compiled`` chooses. The contract below holds for both; a differential fuzz test
checks it.

Scanner
-------
``Scanner(frame_max: int, message_max: int)``

* ``scan(data: bytes | memoryview) -> list[Run]`` takes the bytes of a read and returns the completed runs, which keep
  nothing of a memoryview.
  Bytes of an unfinished frame or content are buffered. ``scan(b"")`` continues with the buffered bytes.
* ``frame_max`` (settable): negotiated frame size in bytes, overhead included; 0 = no limit. As in
  RabbitMQ a *payload* of up to ``frame_max`` bytes is tolerated, one more is a FrameError.
* ``stepwise`` (settable, default False): return after the first run made from one frame, buffer the
  rest. The handshake uses it, because tune-ok changes ``frame_max``.
* ``pending`` (property): tuple of the channels whose content is not yet complete, ``()`` mostly, and behind an error.
* ``buffered`` (property): the number of buffered bytes.
* ``awaited`` (property): how many bytes of a body are still to come, where ``scan`` has ended within one of its frames;
  otherwise, and always in the pure kernel, 0.
* ``frames`` (property): the number of frames that the last ``scan`` parsed one by one.
* ``read_body(descriptor: int, bytes_max: int) -> list[Run]``: read the rest of a body from a non-blocking socket,
  straight into the message's buffer. Stop when the body is complete, when no bytes are left to read, or after about
  ``bytes_max`` bytes, earlier where the frames are small. Return the completed runs; leave an end of the stream to the
  next reader.
* ``swallow(bytes_max=...)``: drop the bodies of the contents that are not yet complete, all or so many that they have
  ``bytes_max`` bytes; the C kernel drops so many bytes, the last body in part. The rest of each body is read and
  dropped as well, and the message then comes as OVERSIZE, whatever its size. After an error, ``swallow`` drops the
  contents that came before the error.

A run is an exact tuple. Its first element (``RUN_KIND``) says which, its second (``RUN_CHANNEL``) mostly the channel:

* ``(PUBLISH, channel, method, mode, messages)``: consecutive messages of one channel with the same
  raw basic.publish and the same mode. ``method`` is the raw method payload, ``class:u16 method:u16
  ticket:u16 exchange:shortstr routing_key:shortstr bits:u8``. ``messages`` is a list of
  ``core.message.Message``; ``origin`` is ``method[6:-1]``. ``mode`` is a bit set:
  ``PERSISTENT`` (delivery-mode is 2) and ``EXAMINE`` (a property is set that the broker must examine:
  headers, delivery-mode other than 1 and 2, priority, reply-to, expiration, user-id; PERSISTENT
  is set as well where delivery-mode is 2). The properties of every message are well formed as to
  length; headers tables are not decoded.
* ``(ACK, channel, tags)``: consecutive basic.ack with multiple=false, delivery tags in order.
* ``(METHOD, channel, ids, arguments)``: any other method; ``ids`` is ``class_id << 16 | method_id``
  and ``arguments`` the bytes after them. The kernel does not know whether the method exists.
  basic.publish on channel 0 comes as METHOD too and no content is awaited.
* ``(OVERSIZE, channel, method, size)``: a content whose header announced more than ``message_max``; its
  body was swallowed, and the run comes when the last byte of it has (RabbitMQ refuses it then, too).
* ``(HEARTBEAT,)``
* ``(ERROR, error)``: an ``amqp.errors.HardError`` with RabbitMQ's code and text; the stream cannot be
  resumed and later ``scan`` calls return ``[]``. Runs before the error come before it in the list.

Malformed properties are ``SyntaxError_`` (502) with method ``60 << 16 | 40``.

Encoders (module functions)
---------------------------
* ``deliveries(channel, consumer_tag: bytes, first_tag: int, redelivered: int, frame_max: int,
  messages: list[Message]) -> bytes``: basic.deliver, header and body frames of all messages with
  delivery tags from ``first_tag`` on; bodies are split at ``frame_max - 8`` (0 = never split).
  The first ``redelivered`` messages carry redelivered = true.
* ``content(channel, method: bytes, frame_max: int, head: bytes, body: bytes) -> bytes``: one
  content-carrying method of any kind (``method`` is its raw payload).
* ``confirm_frames(channel, answers: list[tuple[bool, int, bool]]) -> bytes``: for each answer ``(is_ack, delivery tag,
  multiple)`` the frame of a basic.ack, or of a basic.nack, which has the bit requeue as RabbitMQ's has.

Runs of messages (module functions)
-----------------------------------
* ``head_bytes(messages: list[Message]) -> int``, ``body_bytes(messages: list[Message]) -> int``: the sum of the sizes
  of all heads, or of all bodies.
* ``pack_run(messages: list[Message], bodies: bool = True) -> tuple[list[bytes], bytes]``: the form in which messages
  travel to another node, their origins and one bytes object: ``bodies:u32 heads:u32`` (how many), the size of each
  head and then of each body (``u32``), the heads, the bodies. There is one origin where all messages have the same
  object, and one head where all are equal. With ``bodies`` False the bodies themselves are left out.
* ``unpack_run(origins: list[bytes], packed: bytes | memoryview) -> list[Message]``: the messages of such a pair; an
  origin or head that they share is one object. ValueError: the values do not fit together.

Sending (module function)
-------------------------
* ``send(descriptors: list[int], outputs: list[bytes]) -> list[tuple[int, int]]``: send each output to the socket of its
  descriptor, without blocking. Return the place of each output that was not sent whole, and how many of its bytes were;
  0 where the socket is full or broken. ValueError: there are not as many of both.

Field tables (module functions; ``amqp.tables`` describes them and their fields)
-------------------------------------------------------------------------------
* ``read_fields(data: bytes, start: int, end: int) -> Table``: the table whose fields fill ``data[start:end]``;
  SyntaxError_ when they are malformed.
* ``write_fields(table: Table, long_letter: str) -> bytes``: a table's bytes, its length first; ``long_letter`` (``L``
  or ``l``) is written for letter ``L``. SyntaxError_, struct.error, OverflowError, AttributeError or TypeError: it
  cannot be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from leveret.amqp.spec import (
    ACK,
    ERROR,
    EXAMINE,
    HEARTBEAT,
    METHOD,
    OVERSIZE,
    PERSISTENT,
    PUBLISH,
    RUN_CHANNEL,
    RUN_KIND,
)  # fmt: skip
from leveret.core.compiled import choose_kernel

__all__ = [
    "ACK", "ERROR", "EXAMINE", "HEARTBEAT", "KERNEL_NAME", "METHOD", "OVERSIZE", "PERSISTENT", "PUBLISH",
    "RUN_CHANNEL", "RUN_KIND", "Run", "Scanner", "body_bytes", "confirm_frames", "content", "deliveries", "head_bytes",
    "pack_run", "read_fields", "send", "unpack_run", "write_fields",
]  # fmt: skip

Run: TypeAlias = tuple[Any, ...]


if TYPE_CHECKING:
    from leveret.amqp._kernel_py import (
        Scanner,
        body_bytes,
        confirm_frames,
        content,
        deliveries,
        head_bytes,
        pack_run,
        read_fields,
        send,
        unpack_run,
        write_fields,
    )

    KERNEL_NAME: str
else:
    KERNEL_NAME, _kernel = choose_kernel("leveret.amqp", Path(__file__).parent)
    Scanner, deliveries, content = _kernel.Scanner, _kernel.deliveries, _kernel.content
    confirm_frames = _kernel.confirm_frames
    head_bytes, body_bytes = _kernel.head_bytes, _kernel.body_bytes
    pack_run, unpack_run = _kernel.pack_run, _kernel.unpack_run
    send = _kernel.send
    read_fields, write_fields = _kernel.read_fields, _kernel.write_fields
