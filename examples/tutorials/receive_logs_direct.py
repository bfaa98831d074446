"""Tutorial 4: print the log lines of the severities that are named."""

import os
import sys

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def callback(channel, method, properties, body):
    print(f" [x] {method.routing_key}:{body.decode()}", flush=True)


severities = sys.argv[1:] or sys.exit(f"usage: {sys.argv[0]} [info] [warning] [error]")
channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
channel.exchange_declare(exchange="direct_logs", exchange_type="direct")
queue = channel.queue_declare(queue="", exclusive=True).method.queue
for severity in severities:
    channel.queue_bind(exchange="direct_logs", queue=queue, routing_key=severity)
channel.basic_consume(queue=queue, on_message_callback=callback, auto_ack=True)
print(" [*] Waiting for logs. To exit press CTRL+C", flush=True)
try:
    channel.start_consuming()
except KeyboardInterrupt:
    channel.connection.close()
