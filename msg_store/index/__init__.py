"""The index on disk: LMDB, its location, its errors, its readers, the check of its pages.

The only folder of the store that imports lmdb, beside ``transient/index``.
Imports format, memtable.
"""
