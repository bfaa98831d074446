"""Actors in processes of their own, and programs as actors.

Imports the base classes of actors, the links between nodes and the runtime.
"""
