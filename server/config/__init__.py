"""Configuration: the settings of a broker, the keys of the files, the files' readers.

The files are ``leveret.toml`` and RabbitMQ's ``rabbitmq.conf``.
Imports errors only.
"""
