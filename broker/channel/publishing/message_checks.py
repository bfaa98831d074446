"""The checks of basic.publish on a message's properties, with RabbitMQ's texts.

Order as in ``rabbit_channel:handle_method(#'basic.publish')``: user-id, expiration, CC/BCC and
delivery-mode. Sans-IO.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leveret.amqp.erlang_text import column_after, string, tagged
from leveret.amqp.errors import PreconditionFailed
from leveret.amqp.properties import Examined, decode_properties, with_headers
from leveret.amqp.tables import type_name
from leveret.core.limits import TTL_MS_MAX

if TYPE_CHECKING:
    from leveret.amqp.tables import Table
    from leveret.broker.vhost.auth.access import User

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


def checked_properties(seen: Examined, user: User) -> int | None:
    """Check user-id, expiration and delivery-mode; return the expiration in ms, or None.

    Raises:
        PreconditionFailed: one of them is wrong.
    """
    if seen.user_id is not None and seen.user_id != user.name and "impersonator" not in user.tags:
        raise PreconditionFailed(
            f"user_id property set to '{seen.user_id}' but authenticated user was '{user.name}'"
        )
    expiration_ms = None if seen.expiration is None else parse_expiration(seen.expiration)
    if seen.delivery_mode not in (None, 1, 2):
        raise PreconditionFailed(f"invalid message: {{delivery_mode_unknown,{seen.delivery_mode}}}")
    return expiration_ms


def parse_expiration(text: str) -> int:
    """Return the expiration property in ms.

    Raises:
        PreconditionFailed: not a whole decimal number from 0 to 315360000000 (a ``+`` is allowed).
    """
    found = _INTEGER.match(text)
    start = f"invalid expiration '{text}': "
    column = column_after(start)
    if found is None:
        reason = "no_integer"
    elif found.end() < len(text):
        left = text[found.end() :].encode("utf-8", "surrogateescape")
        reason = tagged("leftover_string", string(left), column)
    elif (value := int(found.group())) < 0:
        reason = tagged("value_negative", value, column)
    elif value > TTL_MS_MAX:
        reason = tagged("value_too_large", value, column)
    else:
        return value
    raise PreconditionFailed(start + reason)


def checked_keys(routing_key: bytes, seen: Examined) -> tuple[list[bytes], list[bytes] | None]:
    """Return routing key and CC, and BCC, None if it is not there; PreconditionFailed: no arrays."""
    if not seen.may_have_cc:
        return [routing_key], None
    headers = seen.headers or {}
    copies, blind = _keys_in(headers, "CC"), _keys_in(headers, "BCC")
    return [routing_key, *(copies or ())], blind


def _keys_in(headers: Table, name: str) -> list[bytes] | None:
    field = headers.get(name)
    if field is None:
        return None
    if field[0] != "A":
        raise PreconditionFailed(
            f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(field)}}}'
        )
    return [value for kind, value in field[1] if kind == "S"]


def without_bcc(head: bytes) -> bytes:
    """Return the header payload without the BCC header; the rest is sorted by key, as RabbitMQ does."""
    headers = decode_properties(head).headers or {}
    kept = {key: headers[key] for key in sorted(headers) if key != "BCC"}
    return with_headers(head, kept)
