"""Definitions: RabbitMQ's JSON document of everything a broker was told to store, out and in.

``file`` reads the document, ``plan`` checks an import as a whole, ``node_definitions`` carries it out.
May import the modules of ``management`` below ``node_admin`` and ``verbs``.
"""
