"""The runtime: run queues on one event loop, mailboxes, links, monitors, signals, calls, timers.

Imports nothing of ``leveret.actors`` but itself.
"""
