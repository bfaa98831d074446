"""A channel: its methods, publishes, deliveries, confirms, routes.

One actor per channel; deliveries and confirms are plain objects.
Imports vhost, queue, mail, script, gate.
"""
