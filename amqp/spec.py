"""The numbers of AMQP 0-9-1 with RabbitMQ's extensions, and the arguments of each method.

A method is known by one int, ``class_id << 16 | method_id``. ``FIELDS`` lists its arguments in wire
order as ``name:type``; a name with a leading ``-`` is reserved or without meaning for a broker of
today (tickets, capabilities, ...): it is read over, written as its neutral value, and no part of the
method's class. Consecutive bits share an octet, least significant first.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

# Kinds and modes of runs; leveret/amqp/kernel.py describes them.
RUN_KIND: Final = 0  # the places of what all runs have
RUN_CHANNEL: Final = 1
PUBLISH: Final = 0
ACK: Final = 1
METHOD: Final = 2
OVERSIZE: Final = 3
HEARTBEAT: Final = 4
ERROR: Final = 5

PERSISTENT: Final = 1
EXAMINE: Final = 2

CONNECTION_START: Final = 10 << 16 | 10
CONNECTION_START_OK: Final = 10 << 16 | 11
CONNECTION_SECURE: Final = 10 << 16 | 20
CONNECTION_SECURE_OK: Final = 10 << 16 | 21
CONNECTION_TUNE: Final = 10 << 16 | 30
CONNECTION_TUNE_OK: Final = 10 << 16 | 31
CONNECTION_OPEN: Final = 10 << 16 | 40
CONNECTION_OPEN_OK: Final = 10 << 16 | 41
CONNECTION_CLOSE: Final = 10 << 16 | 50
CONNECTION_CLOSE_OK: Final = 10 << 16 | 51
CONNECTION_BLOCKED: Final = 10 << 16 | 60
CONNECTION_UNBLOCKED: Final = 10 << 16 | 61
CONNECTION_UPDATE_SECRET: Final = 10 << 16 | 70
CONNECTION_UPDATE_SECRET_OK: Final = 10 << 16 | 71
CHANNEL_OPEN: Final = 20 << 16 | 10
CHANNEL_OPEN_OK: Final = 20 << 16 | 11
CHANNEL_FLOW: Final = 20 << 16 | 20
CHANNEL_FLOW_OK: Final = 20 << 16 | 21
CHANNEL_CLOSE: Final = 20 << 16 | 40
CHANNEL_CLOSE_OK: Final = 20 << 16 | 41
ACCESS_REQUEST: Final = 30 << 16 | 10
ACCESS_REQUEST_OK: Final = 30 << 16 | 11
EXCHANGE_DECLARE: Final = 40 << 16 | 10
EXCHANGE_DECLARE_OK: Final = 40 << 16 | 11
EXCHANGE_DELETE: Final = 40 << 16 | 20
EXCHANGE_DELETE_OK: Final = 40 << 16 | 21
EXCHANGE_BIND: Final = 40 << 16 | 30
EXCHANGE_BIND_OK: Final = 40 << 16 | 31
EXCHANGE_UNBIND: Final = 40 << 16 | 40
EXCHANGE_UNBIND_OK: Final = 40 << 16 | 51
QUEUE_DECLARE: Final = 50 << 16 | 10
QUEUE_DECLARE_OK: Final = 50 << 16 | 11
QUEUE_BIND: Final = 50 << 16 | 20
QUEUE_BIND_OK: Final = 50 << 16 | 21
QUEUE_PURGE: Final = 50 << 16 | 30
QUEUE_PURGE_OK: Final = 50 << 16 | 31
QUEUE_DELETE: Final = 50 << 16 | 40
QUEUE_DELETE_OK: Final = 50 << 16 | 41
QUEUE_UNBIND: Final = 50 << 16 | 50
QUEUE_UNBIND_OK: Final = 50 << 16 | 51
BASIC_QOS: Final = 60 << 16 | 10
BASIC_QOS_OK: Final = 60 << 16 | 11
BASIC_CONSUME: Final = 60 << 16 | 20
BASIC_CONSUME_OK: Final = 60 << 16 | 21
BASIC_CANCEL: Final = 60 << 16 | 30
BASIC_CANCEL_OK: Final = 60 << 16 | 31
BASIC_PUBLISH: Final = 60 << 16 | 40
BASIC_RETURN: Final = 60 << 16 | 50
BASIC_DELIVER: Final = 60 << 16 | 60
BASIC_GET: Final = 60 << 16 | 70
BASIC_GET_OK: Final = 60 << 16 | 71
BASIC_GET_EMPTY: Final = 60 << 16 | 72
BASIC_ACK: Final = 60 << 16 | 80
BASIC_REJECT: Final = 60 << 16 | 90
BASIC_RECOVER_ASYNC: Final = 60 << 16 | 100
BASIC_RECOVER: Final = 60 << 16 | 110
BASIC_RECOVER_OK: Final = 60 << 16 | 111
BASIC_NACK: Final = 60 << 16 | 120
CONFIRM_SELECT: Final = 85 << 16 | 10
CONFIRM_SELECT_OK: Final = 85 << 16 | 11
TX_SELECT: Final = 90 << 16 | 10
TX_SELECT_OK: Final = 90 << 16 | 11
TX_COMMIT: Final = 90 << 16 | 20
TX_COMMIT_OK: Final = 90 << 16 | 21
TX_ROLLBACK: Final = 90 << 16 | 30
TX_ROLLBACK_OK: Final = 90 << 16 | 31

FIELDS: Final[dict[int, str]] = {
    CONNECTION_START: (
        "version_major:octet version_minor:octet server_properties:table "
        "mechanisms:longstr locales:longstr"
    ),
    CONNECTION_START_OK: (
        "client_properties:table mechanism:shortstr response:longstr locale:shortstr"
    ),
    CONNECTION_SECURE: "challenge:longstr",
    CONNECTION_SECURE_OK: "response:longstr",
    CONNECTION_TUNE: "channel_max:short frame_max:long heartbeat:short",
    CONNECTION_TUNE_OK: "channel_max:short frame_max:long heartbeat:short",
    CONNECTION_OPEN: "virtual_host:shortstr -capabilities:shortstr -insist:bit",
    CONNECTION_OPEN_OK: "-known_hosts:shortstr",
    CONNECTION_CLOSE: "reply_code:short reply_text:shortstr class_id:short method_id:short",
    CONNECTION_CLOSE_OK: "",
    CONNECTION_BLOCKED: "reason:shortstr",
    CONNECTION_UNBLOCKED: "",
    CONNECTION_UPDATE_SECRET: "new_secret:longstr reason:shortstr",
    CONNECTION_UPDATE_SECRET_OK: "",
    CHANNEL_OPEN: "-out_of_band:shortstr",
    CHANNEL_OPEN_OK: "-channel_id:longstr",
    CHANNEL_FLOW: "active:bit",
    CHANNEL_FLOW_OK: "active:bit",
    CHANNEL_CLOSE: "reply_code:short reply_text:shortstr class_id:short method_id:short",
    CHANNEL_CLOSE_OK: "",
    ACCESS_REQUEST: "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit",
    ACCESS_REQUEST_OK: "ticket:short",
    EXCHANGE_DECLARE: (
        "-ticket:short exchange:shortstr type:shortstr passive:bit durable:bit "
        "auto_delete:bit internal:bit nowait:bit arguments:table"
    ),
    EXCHANGE_DECLARE_OK: "",
    EXCHANGE_DELETE: "-ticket:short exchange:shortstr if_unused:bit nowait:bit",
    EXCHANGE_DELETE_OK: "",
    EXCHANGE_BIND: (
        "-ticket:short destination:shortstr source:shortstr routing_key:shortstr "
        "nowait:bit arguments:table"
    ),
    EXCHANGE_BIND_OK: "",
    EXCHANGE_UNBIND: (
        "-ticket:short destination:shortstr source:shortstr routing_key:shortstr "
        "nowait:bit arguments:table"
    ),
    EXCHANGE_UNBIND_OK: "",
    QUEUE_DECLARE: (
        "-ticket:short queue:shortstr passive:bit durable:bit exclusive:bit "
        "auto_delete:bit nowait:bit arguments:table"
    ),
    QUEUE_DECLARE_OK: "queue:shortstr message_count:long consumer_count:long",
    QUEUE_BIND: (
        "-ticket:short queue:shortstr exchange:shortstr routing_key:shortstr nowait:bit "
        "arguments:table"
    ),
    QUEUE_BIND_OK: "",
    QUEUE_PURGE: "-ticket:short queue:shortstr nowait:bit",
    QUEUE_PURGE_OK: "message_count:long",
    QUEUE_DELETE: "-ticket:short queue:shortstr if_unused:bit if_empty:bit nowait:bit",
    QUEUE_DELETE_OK: "message_count:long",
    QUEUE_UNBIND: (
        "-ticket:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table"
    ),
    QUEUE_UNBIND_OK: "",
    BASIC_QOS: "prefetch_size:long prefetch_count:short global_:bit",
    BASIC_QOS_OK: "",
    BASIC_CONSUME: (
        "-ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit "
        "exclusive:bit nowait:bit arguments:table"
    ),
    BASIC_CONSUME_OK: "consumer_tag:shortstr",
    BASIC_CANCEL: "consumer_tag:shortstr nowait:bit",
    BASIC_CANCEL_OK: "consumer_tag:shortstr",
    BASIC_PUBLISH: (
        "-ticket:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit"
    ),
    BASIC_RETURN: "reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr",
    BASIC_DELIVER: (
        "consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr "
        "routing_key:shortstr"
    ),
    BASIC_GET: "-ticket:short queue:shortstr no_ack:bit",
    BASIC_GET_OK: (
        "delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr "
        "message_count:long"
    ),
    BASIC_GET_EMPTY: "-cluster_id:shortstr",
    BASIC_ACK: "delivery_tag:longlong multiple:bit",
    BASIC_REJECT: "delivery_tag:longlong requeue:bit",
    BASIC_RECOVER_ASYNC: "requeue:bit",
    BASIC_RECOVER: "requeue:bit",
    BASIC_RECOVER_OK: "",
    BASIC_NACK: "delivery_tag:longlong multiple:bit requeue:bit",
    CONFIRM_SELECT: "nowait:bit",
    CONFIRM_SELECT_OK: "",
    TX_SELECT: "",
    TX_SELECT_OK: "",
    TX_COMMIT: "",
    TX_COMMIT_OK: "",
    TX_ROLLBACK: "",
    TX_ROLLBACK_OK: "",
}

CONTENT_METHODS: Final = frozenset({BASIC_PUBLISH, BASIC_RETURN, BASIC_DELIVER, BASIC_GET_OK})


def _wire_name(constant: str) -> str:
    """Turn ``QUEUE_DECLARE_OK`` into ``queue.declare-ok``."""
    class_name, _, method_name = constant.lower().partition("_")
    return f"{class_name}.{method_name.replace('_', '-')}"


METHOD_NAMES: Final[dict[int, str]] = {
    value: _wire_name(name)
    for name, value in list(globals().items())
    if isinstance(value, int) and value in FIELDS
}


def method_name(ids: int) -> str:
    """Return ``queue.declare``, the numbers of an unknown method, or ``none`` for 0."""
    return METHOD_NAMES.get(ids, f"{ids >> 16}.{ids & 0xFFFF}" if ids else "none")
