"""Stores that nobody has open: inspect, audit, repair, salvage, snapshot.

Used by ``leveret store`` and ``leveret snapshot``; no loop and no threads.
May import every part but transient and the modules at the root.
"""
