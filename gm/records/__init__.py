"""The record of a group: who its members are, in ring order.

``group`` is the record and the names in it, ``transactions`` its five changes as pure functions, ``store`` the
interface of what keeps records, ``memory_store`` a store in memory, ``etcd_store`` one in etcd, ``codec`` a record as
bytes, ``transactor`` carries a transaction out on a store: compare-and-swap, conflicts, a store that does not answer.
Imports etcd and core only.
"""
