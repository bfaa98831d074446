"""Actors in processes of their own, and programs as actors."""
