"""Queues that keep all messages in RAM, and their way to a variable queue.

A queue moves over when it may be paged out.
Imports variable, index, api, status.
"""
