"""Stores that nobody has open: inspect, audit, repair, salvage, snapshot.

Used by ``leveret store`` and ``leveret snapshot``; no loop and no threads.
Imports every sub-package but transient.
"""
