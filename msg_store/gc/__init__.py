"""Garbage collection: live messages of segments with much garbage are copied, the segments removed.

choose, scan and copy are the steps, ``collector`` their order, ``driver`` the thread.
May import all of msg_store but transient, offline and the modules at its root.
"""
