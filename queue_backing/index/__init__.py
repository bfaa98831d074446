"""What a variable queue sees of the disk: the protocol ``QueueIndex``, and the one over a message store.

One instance per queue, none for a queue that stays in RAM.
Imports api and status; ``stored`` imports msg_store.
"""
