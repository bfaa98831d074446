"""A test of a broker with pika: publish one message and get it back.

pip install pika
python examples/hello.py [amqp://guest:guest@127.0.0.1:5672/]
"""

from __future__ import annotations

import sys

import pika


def main(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("hello", auto_delete=True)
        channel.basic_publish("", "hello", b"Hello World!")
        for _, _, body in channel.consume("hello", auto_ack=True, inactivity_timeout=5):
            print(body.decode() if body else "no answer within 5 s")
            break


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@127.0.0.1:5672/")
