"""Tutorial 2: work off task_queue, one task at a time, acknowledged when done."""

import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")
SECONDS_PER_DOT = float(os.environ.get("SECONDS_PER_DOT", "1"))


def callback(channel, method, properties, body):
    print(f" [x] Received {body.decode()}", flush=True)
    time.sleep(body.count(b".") * SECONDS_PER_DOT)
    print(" [x] Done", flush=True)
    channel.basic_ack(delivery_tag=method.delivery_tag)


channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
channel.queue_declare(queue="task_queue", durable=True)
channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue="task_queue", on_message_callback=callback)
print(" [*] Waiting for messages. To exit press CTRL+C", flush=True)
try:
    channel.start_consuming()
except KeyboardInterrupt:
    channel.connection.close()
