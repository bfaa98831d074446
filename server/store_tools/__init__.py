"""``leveret store``: stat, verify, repair, salvage and compact of offline stores.

Works on data directories that no broker has open.
Imports output, process, config and errors.
"""
