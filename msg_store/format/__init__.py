"""Bytes on disk: records, rows, headers, checksums, file names, and the kernel that codes them.

The constants of the format live here and nowhere else; docs/storage.md has the byte shapes.
The lowest part of the store: imports nothing of msg_store but itself.
"""
