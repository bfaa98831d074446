"""Checkpoints: frozen memtables go into the index; snapshots of a running store.

The core decides, ``driver`` owns the reading and the writing thread of the index.
May import format, threads, memtable, wal, index.
"""
