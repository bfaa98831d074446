"""``leveret migrate``: definitions and messages of a RabbitMQ, or of another Leveret, into a Leveret.

``pump`` is the way of a vhost's messages, without I/O; ``transfer`` gives it its connections; ``definitions`` reads and
chooses the queues; ``command`` is the command. May import what ``server.cli`` may but for ``cli``, and the client of
``leveret.spark.publish``, which needs no library of the extra ``spark``.
"""
