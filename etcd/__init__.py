"""The store that the nodes of a cluster share: etcd, asked over its HTTP gateway.

``errors`` are its failures, ``key_values`` what it holds, ``settings`` where it is and who asks, ``gateway`` and
``gateway_txns`` the forms of requests and answers without I/O, ``client`` the connections to its servers,
``background`` the client for code that cannot wait.
Imports core only.
"""
