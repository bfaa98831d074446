"""Garbage collection: segments with few live messages are copied together and removed.

choose, scan and copy are the steps, ``collector`` their order, ``driver`` the thread.
Imports format, threads, memtable, wal, index, checkpoint.
"""
