"""What lies between a socket and its connection: the PROXY protocol and TLS, for listeners that are set up so.

``proxy`` reads a ``proxy_header``; ``tls`` encrypts, ``handshakes`` gives the handshakes of a node their turns,
``credentials`` makes OpenSSL's context from files, ``certificate`` reads names and dates, and ``connected`` is what
a layer asks of the connection.
"""
