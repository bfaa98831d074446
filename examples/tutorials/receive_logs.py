"""Tutorial 3: print every log line sent from now on."""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def callback(channel, method, properties, body):
    print(f" [x] {body.decode()}", flush=True)


channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
channel.exchange_declare(exchange="logs", exchange_type="fanout")
queue = channel.queue_declare(queue="", exclusive=True).method.queue
channel.queue_bind(exchange="logs", queue=queue)
channel.basic_consume(queue=queue, on_message_callback=callback, auto_ack=True)
print(" [*] Waiting for logs. To exit press CTRL+C", flush=True)
try:
    channel.start_consuming()
except KeyboardInterrupt:
    channel.connection.close()
