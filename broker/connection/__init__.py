"""Connections: sockets, listener, handshake, reader, writer, channel numbers.

One reader actor per connection; ``states`` is the table of its states, ``read_control`` decides whether it
reads. ``connections`` counts the open ones and checks their limits, ``alarms`` block publishers.
May import ``channel`` and the folders below it.
"""
