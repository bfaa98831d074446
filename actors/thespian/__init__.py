"""Thespian: AsyncioBase, the runtime as a system base, and supervised actors on Thespian's own bases.

Imports the base classes of actors, the runtime, and ``die_with_parent`` of processes.
"""
