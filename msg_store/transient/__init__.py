"""The transient store: contents of messages that need not survive, paged out of RAM by their queues.

``store`` is the part on the loop, ``paging_core`` and ``paged_queue`` decide without I/O, ``writer`` and
``reader`` run on a thread each, over files that ``segment`` describes. May import format, threads and reading.
"""
