"""AMQP 0-9-1 without I/O: a connection's bytes become runs, messages and methods become bytes.

``kernel`` is the contract of the codec, which the pure (``_kernel_py``) and the compiled kernel (``_kernel_c``)
fulfil. ``spec`` has the numbers, ``methods`` a class per method, ``properties`` and ``tables`` the fields of
messages, ``errors`` the reply codes, ``sasl`` and ``heartbeat`` the rules of a connection.
Imports core only.
"""
