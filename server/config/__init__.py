"""Configuration: the settings of a broker, the keys of the files, the reading of the files.

``leveret.toml`` and RabbitMQ's ``rabbitmq.conf``.
Imports nothing of server.
"""
