"""Offline stores, which no process has open: inspection, audit, repair, salvage, snapshot, compaction.

One audit serves every command and job. ``inspection`` opens a store as its next start would, ``audit`` compares all
that is in it; a unit of its work is a segment (``segment_check``), read by this process or by tasks of Spark
(``leveret.spark.jobs.audit_spark``). ``defects`` names what was found by class, ``changes`` what the index needs;
``repair_plan`` writes that down, ``repair`` carries it out, ``salvage`` copies what can be read, and ``rebuilding``
makes an index from the segments alone.

Used by ``leveret store``, ``audit``, ``rebuild`` and ``snapshot``; no loop and no threads.
May import every part but transient and the modules at the root.
"""
