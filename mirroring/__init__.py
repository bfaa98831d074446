"""Mirrored queues: a queue's replicas on several nodes, of which one, the master, serves clients.

``replicas/`` has the state machines of master and mirror: they confirm messages, keep the in-sync set and choose the
next master. ``MirroredQueue`` is the backing queue of a master with its ``MasterContent``; a mirror has a
``MirrorContent``. ``sync_points`` says what of either is on disk, ``replicated`` what replicas send each other,
``wire`` how, and ``queue_records`` how the record is kept in etcd.
The broker does not use this package yet.
"""
