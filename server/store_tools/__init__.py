"""``leveret store``: stat, verify, repair, salvage and compact of stores at rest.

Works on data directories that no broker has open.
Imports output, process.
"""
