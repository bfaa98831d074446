"""Tutorial 6: compute Fibonacci numbers on request."""

import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def on_request(channel, method, properties, body):
    print(f" [.] fib({int(body)})", flush=True)
    channel.basic_publish(
        exchange="",
        routing_key=properties.reply_to,
        properties=pika.BasicProperties(correlation_id=properties.correlation_id),
        body=str(fibonacci(int(body))),
    )
    channel.basic_ack(delivery_tag=method.delivery_tag)


channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
channel.queue_declare(queue="rpc_queue")
channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue="rpc_queue", on_message_callback=on_request)
print(" [x] Awaiting RPC requests", flush=True)
try:
    channel.start_consuming()
except KeyboardInterrupt:
    channel.connection.close()
