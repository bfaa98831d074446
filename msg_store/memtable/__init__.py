"""Memtables: changes that the journal has made durable and no checkpoint has written to LMDB yet.

Also the numbers kept beside them: reference counts, segment sizes, sets of seqs.
May import format.
"""
