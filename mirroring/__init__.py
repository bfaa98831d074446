"""Mirrored queues: a queue's replicas on several nodes, of which one, the master, serves clients.

``replicas/`` has the state machines of master and mirror: they confirm messages, keep the in-sync set and choose the
next master. The broker does not use this package yet.
"""
