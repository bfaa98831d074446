"""Definitions: RabbitMQ's JSON document of everything a broker was told to store, out and in.

``file`` reads the document, ``plan`` checks an import as a whole, ``node_definitions`` carries it out.
Imports output, process, config and errors.
"""
