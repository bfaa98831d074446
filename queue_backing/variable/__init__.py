"""The variable queue: Q4, Q3, delta, Q2, Q1 and the moves between them.

A plain object without I/O and without actors; time and index come in from outside.
Imports index (the protocol), api, core, amqp, and of msg_store only the kernel.
"""
