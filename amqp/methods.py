"""Methods: a class for each, and the way from and to their bytes.

``spec.FIELDS`` has the wire formats. Reserved arguments and tickets are left out of the
classes. Short strings are ``str`` (UTF-8, other octets as surrogate escapes), long ones ``bytes``,
bits ``bool``. Reading is strict, as RabbitMQ's is: one octet too few or too many is a FrameError.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import field

from leveret.amqp import fields
from leveret.amqp.errors import CommandInvalid
from leveret.amqp.fields import Method
from leveret.amqp.frame_errors import cannot_decode
from leveret.amqp.spec import CONTENT_METHODS, FIELDS, FRAME_METHOD
from leveret.amqp.tables import Table


class ConnectionStart(Method):
    version_major: int = 0
    version_minor: int = 9
    server_properties: Table = field(default_factory=dict)
    mechanisms: bytes = b"PLAIN"
    locales: bytes = b"en_US"


class ConnectionStartOk(Method):
    client_properties: Table = field(default_factory=dict)
    mechanism: str = "PLAIN"
    response: bytes = b""
    locale: str = "en_US"


class ConnectionSecure(Method):
    challenge: bytes = b""


class ConnectionSecureOk(Method):
    response: bytes = b""


class ConnectionTune(Method):
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionTuneOk(Method):
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionOpen(Method):
    virtual_host: str = "/"


class ConnectionOpenOk(Method):
    """connection.open-ok."""


class ConnectionClose(Method):
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


class ConnectionCloseOk(Method):
    """connection.close-ok."""


class ConnectionBlocked(Method):
    reason: str = ""


class ConnectionUnblocked(Method):
    """connection.unblocked."""


class ConnectionUpdateSecret(Method):
    new_secret: bytes = b""
    reason: str = ""


class ConnectionUpdateSecretOk(Method):
    """connection.update-secret-ok."""


class ChannelOpen(Method):
    """channel.open."""


class ChannelOpenOk(Method):
    """channel.open-ok."""


class ChannelFlow(Method):
    active: bool = False


class ChannelFlowOk(Method):
    active: bool = False


class ChannelClose(Method):
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


class ChannelCloseOk(Method):
    """channel.close-ok."""


class AccessRequest(Method):
    realm: str = "/data"
    exclusive: bool = False
    passive: bool = True
    active: bool = True
    write: bool = True
    read: bool = True


class AccessRequestOk(Method):
    ticket: int = 1


class ExchangeDeclare(Method):
    exchange: str = ""
    type: str = "direct"
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


class ExchangeDeclareOk(Method):
    """exchange.declare-ok."""


class ExchangeDelete(Method):
    exchange: str = ""
    if_unused: bool = False
    nowait: bool = False


class ExchangeDeleteOk(Method):
    """exchange.delete-ok."""


class ExchangeBind(Method):
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


class ExchangeBindOk(Method):
    """exchange.bind-ok."""


class ExchangeUnbind(Method):
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


class ExchangeUnbindOk(Method):
    """exchange.unbind-ok."""


class QueueDeclare(Method):
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


class QueueDeclareOk(Method):
    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


class QueueBind(Method):
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


class QueueBindOk(Method):
    """queue.bind-ok."""


class QueuePurge(Method):
    queue: str = ""
    nowait: bool = False


class QueuePurgeOk(Method):
    message_count: int = 0


class QueueDelete(Method):
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    nowait: bool = False


class QueueDeleteOk(Method):
    message_count: int = 0


class QueueUnbind(Method):
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: Table = field(default_factory=dict)


class QueueUnbindOk(Method):
    """queue.unbind-ok."""


class BasicQos(Method):
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


class BasicQosOk(Method):
    """basic.qos-ok."""


class BasicConsume(Method):
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


class BasicConsumeOk(Method):
    consumer_tag: str = ""


class BasicCancel(Method):
    consumer_tag: str = ""
    nowait: bool = False


class BasicCancelOk(Method):
    consumer_tag: str = ""


class BasicPublish(Method):
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


class BasicReturn(Method):
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


class BasicDeliver(Method):
    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


class BasicGet(Method):
    queue: str = ""
    no_ack: bool = False


class BasicGetOk(Method):
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


class BasicGetEmpty(Method):
    """basic.get-empty."""


class BasicAck(Method):
    delivery_tag: int = 0
    multiple: bool = False


class BasicReject(Method):
    delivery_tag: int = 0
    requeue: bool = True


class BasicRecoverAsync(Method):
    requeue: bool = False


class BasicRecover(Method):
    requeue: bool = False


class BasicRecoverOk(Method):
    """basic.recover-ok."""


class BasicNack(Method):
    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = True


class ConfirmSelect(Method):
    nowait: bool = False


class ConfirmSelectOk(Method):
    """confirm.select-ok."""


class TxSelect(Method):
    """tx.select."""


class TxSelectOk(Method):
    """tx.select-ok."""


class TxCommit(Method):
    """tx.commit."""


class TxCommitOk(Method):
    """tx.commit-ok."""


class TxRollback(Method):
    """tx.rollback."""


class TxRollbackOk(Method):
    """tx.rollback-ok."""


_FRAME: Final = struct.Struct(">BHI")
_CLASSES: Final[dict[int, type[Method]]] = {cls.IDS: cls for cls in Method.__subclasses__()}
# Methods with a content are not checked for UTF-8: RabbitMQ leaves that out for speed.
_READERS: Final = {ids: fields.reader(FIELDS[ids], ids not in CONTENT_METHODS) for ids in _CLASSES}
_WRITERS: Final = {ids: fields.writer(FIELDS[ids], ids) for ids in _CLASSES}


def decode(ids: int, arguments: bytes) -> Method:
    """Return the method with ``ids`` out of its arguments.

    Raises:
        CommandInvalid: no method has these ids.
        FrameError: the arguments are not this method's, or a short string is not UTF-8.
        SyntaxError_: a table among them cannot be read.
    """
    cls = _CLASSES.get(ids)
    if cls is None:
        raise CommandInvalid(f"unknown method {{{ids >> 16},{ids & 0xFFFF}}}", ids)
    try:
        return cls(*_READERS[ids](arguments))
    except (IndexError, struct.error):
        raise cannot_decode(ids, arguments) from None


def encode(method: Method) -> bytes:
    """Return the payload of a method frame, ids included; struct.error: a value does not fit."""
    return _WRITERS[method.IDS](method)


def method_frame(channel: int, payload: bytes) -> bytes:
    """Return the frame for a method's payload."""
    return b"%b%b\xce" % (_FRAME.pack(FRAME_METHOD, channel, len(payload)), payload)
