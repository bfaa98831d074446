"""Reading back: rows from index and memtables, bodies from segments, the read cache.

Everything that blocks runs on the reader thread.
May import format, threads, memtable, wal, index.
"""
