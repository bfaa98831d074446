"""The operator's methods on a running broker, behind the control socket.

One file per subject; ``api`` is the protocol that clients of the socket see.
Imports definitions, snapshots, config.
"""
