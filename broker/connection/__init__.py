"""A connection: listener, socket, handshake, reader, writer, channel numbers.

One reader actor per connection; control of reading and alarms act here.
Imports channel, vhost, queue, mail, script, settings, gate.
"""
