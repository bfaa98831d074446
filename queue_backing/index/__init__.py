"""The index of a variable queue: the protocol ``QueueIndex``, and ``StoredIndex`` over a message store.

A queue that stays in RAM has none. ``row_window`` keeps the rows that are being loaded.
``stored`` imports msg_store.
"""
