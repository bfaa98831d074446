"""The runtime: run queues on one event loop, mailboxes, links, monitors, signals, timers.

No Thespian here: hosts for its actors are handed in.
Imports nothing of actors but itself.
"""
