"""Metadata that the nodes of a cluster share: rows in etcd, all of them in the memory of every node.

``codec`` has the keys and values, ``replica`` the rows of one node as of a revision, ``writes`` its changes on their
way, ``nodes`` which nodes live and how far they are, ``session`` what one node does with etcd, all of them without
I/O. ``store`` is the session as a ``Metadata`` on an event loop; ``transfer`` moves the rows of a data directory to
etcd and back. Imports amqp, etcd and core only.
"""
