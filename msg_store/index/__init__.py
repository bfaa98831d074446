"""The index on disk: LMDB, its location, its errors, its readers, the check of its pages.

The only part of the store that imports lmdb, beside ``transient/index``.
May import format, memtable.
"""
