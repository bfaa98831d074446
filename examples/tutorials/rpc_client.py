"""Tutorial 6: ask for a Fibonacci number and wait for the answer."""

import os
import sys
import uuid

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/")


class FibonacciClient:
    def __init__(self):
        self.connection = pika.BlockingConnection(pika.URLParameters(URL))
        self.channel = self.connection.channel()
        self.callback_queue = self.channel.queue_declare(queue="", exclusive=True).method.queue
        self.channel.basic_consume(self.callback_queue, self.on_response, auto_ack=True)
        self.response = None
        self.correlation_id = None

    def on_response(self, channel, method, properties, body):
        if self.correlation_id == properties.correlation_id:
            self.response = body

    def call(self, n):
        self.response, self.correlation_id = None, str(uuid.uuid4())
        properties = pika.BasicProperties(
            reply_to=self.callback_queue, correlation_id=self.correlation_id
        )
        self.channel.basic_publish("", "rpc_queue", str(n), properties)
        while self.response is None:
            self.connection.process_data_events(time_limit=None)
        return int(self.response)


number = int(sys.argv[1]) if len(sys.argv) > 1 else 30
client = FibonacciClient()
print(f" [x] Requesting fib({number})")
print(f" [.] Got {client.call(number)}")
client.connection.close()
