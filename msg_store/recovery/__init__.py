"""Opening a store: journals are replayed, rows are checked, a lost index is rebuilt.

Runs before the store has an owner; hands over memtables and a report.
May import format, memtable, wal, index, checkpoint, reading.
"""
