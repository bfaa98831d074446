"""Leveret and Spark: stored messages as data frames, data frames as published messages.

``publish`` is the publisher of a data frame's rows, without Spark; ``sink`` calls it from Spark's tasks.
Imports amqp and core.
"""
