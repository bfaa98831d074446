"""What a channel does with publishes: checks, routes, sends to queues, and numbers.

``publish`` sends a run to its queues, those of other nodes through ``node_publish``, and very many of them with
``fan_out``. ``replies`` are publishes to reply consumers, without a queue.
"""
