"""The node: the supervision tree, alarms, watches, message stores, maintenance, snapshots.

What exists once per process; puts all other sub-packages together.
Imports everything of broker.
"""
