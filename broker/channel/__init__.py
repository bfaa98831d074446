"""A channel: its methods, confirms, routes and transaction; folders for publishing and consuming.

One actor per channel; publisher, deliveries and confirms are objects that it owns. ``session`` has
the objects that the channels of a connection share.
May import ``vhost``, ``queue`` and the modules of ``broker`` itself.
"""
