"""Tutorial 3: send a log line to everyone who listens."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")

with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
    channel = connection.channel()
    channel.exchange_declare(exchange="logs", exchange_type="fanout")
    message = " ".join(sys.argv[1:]) or "info: Hello World!"
    channel.basic_publish(exchange="logs", routing_key="", body=message)
    print(f" [x] Sent {message}")
