"""The AMQP server: its actors and the rules of the protocol."""
