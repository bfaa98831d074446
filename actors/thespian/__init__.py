"""Thespian: AsyncioBase, our runtime as a system base, and supervised actors on its own bases.

The only place that knows Thespian's internals.
Imports the actor API, runtime, processes.
"""
