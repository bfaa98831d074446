"""Actors in processes of their own, and programs as actors.

Imports the base classes of actors and the runtime.
"""
