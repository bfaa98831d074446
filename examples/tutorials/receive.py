"""Tutorial 1: print what arrives in the queue hello."""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def callback(channel, method, properties, body):
    print(f" [x] Received {body.decode()}", flush=True)


channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
channel.queue_declare(queue="hello")
channel.basic_consume(queue="hello", on_message_callback=callback, auto_ack=True)
print(" [*] Waiting for messages. To exit press CTRL+C", flush=True)
try:
    channel.start_consuming()
except KeyboardInterrupt:
    channel.connection.close()
