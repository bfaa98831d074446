"""The write path: pending work, group commit, journal frames, segments, back pressure.

Cores do no I/O; ``driver`` connects them to the writer threads.
May import format, threads, memtable, archive.
"""
