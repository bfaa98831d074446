"""Offline stores, which no process has open: inspection, audit, repair, salvage, snapshot, compaction.

Used by ``leveret store`` and ``leveret snapshot``; no loop and no threads.
May import every part but transient and the modules at the root.
"""
