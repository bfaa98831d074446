"""Threads: a worker that does one job after the other, and the two writers of a flush.

Results come back to the loop that owns the store; nothing here knows what a job does.
May import format.
"""
