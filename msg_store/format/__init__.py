"""Bytes on the disk: records, rows, headers, checksums, file names, and the kernel that codes them.

The store's constants of the format live here and nowhere else; docs/storage.md has the byte shapes.
Imports nothing of msg_store but itself; every other sub-package may import it.
"""
