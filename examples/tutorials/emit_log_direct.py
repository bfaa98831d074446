"""Tutorial 4: send a log line with a severity: ``emit_log_direct.py error "it burns"``."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")

with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
    channel = connection.channel()
    channel.exchange_declare(exchange="direct_logs", exchange_type="direct")
    severity = sys.argv[1] if len(sys.argv) > 1 else "info"
    message = " ".join(sys.argv[2:]) or "Hello World!"
    channel.basic_publish(exchange="direct_logs", routing_key=severity, body=message)
    print(f" [x] Sent {severity}:{message}")
