"""An interceptor: each message that is published gets a header with the time, in milliseconds."""

import time

from leveret.amqp.properties import decode_properties, with_headers
from leveret.broker.channel.interceptors import Interceptor


class Stamp(Interceptor):
    def published(self, client, exchange, routing_key, messages):
        stamp = {"timestamp_in_ms": ("l", int(time.time() * 1000))}
        return [
            (origin, with_headers(head, (decode_properties(head).headers or {}) | stamp), body)
            for origin, head, body in messages
        ]
