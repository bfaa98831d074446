"""A client of etcd, the store that the nodes of a cluster share, over its HTTP gateway.

``errors`` are its failures, ``key_values`` its data types and interface, ``settings`` its endpoints and the login,
``gateway`` and ``gateway_txns`` the forms of requests and answers without I/O, ``client`` the connections to its
servers, ``background`` the client for code that cannot wait, ``batched`` many operations of it in few requests.
Imports core only.
"""
