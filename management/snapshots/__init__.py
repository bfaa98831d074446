"""Snapshots of a data directory: create, list, verify, restore, drop.

``making`` completes a draft, ``copying`` copies and restores, ``checking`` verifies, ``directory`` names them.
May import the modules of ``management`` below ``node_admin`` and ``verbs``.
"""
