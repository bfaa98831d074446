"""The transient store: messages that need not survive and must leave RAM.

Its own segments and LMDB file, never synced and wiped at every start.
May import format, threads.
"""
