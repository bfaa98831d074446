"""Definitions: export and import of RabbitMQ's JSON document of users, vhosts, policies and topology.

``file`` reads the document, ``plan`` checks an import as a whole, ``node_definitions`` carries it out.
May import the modules of ``management`` below ``node_admin`` and ``verbs``.
"""
