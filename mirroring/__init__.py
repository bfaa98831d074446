"""Mirrored queues: a queue's replicas on several nodes, of which one, the master, serves clients.

``replicas/`` decides what is confirmed, who is in sync and who becomes master. The package has no caller in the
broker yet.
"""
