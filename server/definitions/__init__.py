"""Definitions files: reading them, planning an import.

The plan is worked out before anything is changed.
Imports admin's protocol only.
"""
