"""Tutorial 5: print the log lines whose topic matches one of the patterns."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def callback(channel, method, properties, body):
    print(f" [x] {method.routing_key}:{body.decode()}", flush=True)


patterns = sys.argv[1:] or sys.exit(f"usage: {sys.argv[0]} [pattern]...")
channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
channel.exchange_declare(exchange="topic_logs", exchange_type="topic")
queue = channel.queue_declare(queue="", exclusive=True).method.queue
for pattern in patterns:
    channel.queue_bind(exchange="topic_logs", queue=queue, routing_key=pattern)
channel.basic_consume(queue=queue, on_message_callback=callback, auto_ack=True)
print(" [*] Waiting for logs. To exit press CTRL+C", flush=True)
try:
    channel.start_consuming()
except KeyboardInterrupt:
    channel.connection.close()
