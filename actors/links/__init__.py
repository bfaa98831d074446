"""Links between nodes: mail, monitors, links, exit signals and calls between the runtimes of several processes.

From the bottom: ``sendable`` and ``codec`` say what a message may be and how it travels; ``limits`` are the settings;
``handshake``, ``frames``, ``streams`` and ``connection`` are the protocol without I/O; ``peer`` joins a connection to a
runtime, and ``signals`` its links and monitors; ``transport`` has the sockets; ``node`` keeps a node's connections.

Imports the base classes of actors, the runtime and ``leveret.core``.
"""
