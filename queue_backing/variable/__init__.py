"""The variable queue: Q1, Q2, delta, Q3, Q4 and the moves between them.

A plain object without I/O and without actors; time and index come in from outside.
Imports index (the protocol), api, status, rates, figures.
"""
