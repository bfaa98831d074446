"""The index on disk: rows of queues and locations of messages in LMDB.

``lmdb_index`` reads and writes, ``files`` opens and compacts, ``page_check`` checks pages before LMDB does.
The only part of the store that imports lmdb.
May import format, memtable.
"""
