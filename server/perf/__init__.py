"""A load generator in the shape of RabbitMQ's PerfTest that verifies what it measures."""
