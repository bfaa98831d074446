"""Tutorial 5: send a log line about a topic: ``emit_log_topic.py kern.critical "a panic"``."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")

with pika.BlockingConnection(pika.URLParameters(URL)) as connection:
    channel = connection.channel()
    channel.exchange_declare(exchange="topic_logs", exchange_type="topic")
    topic = sys.argv[1] if len(sys.argv) > 1 else "anonymous.info"
    message = " ".join(sys.argv[2:]) or "Hello World!"
    channel.basic_publish(exchange="topic_logs", routing_key=topic, body=message)
    print(f" [x] Sent {topic}:{message}")
