"""What a variable queue sees of the disk: the protocol, over a store, and in RAM.

One instance per queue.
Imports api and status; ``stored`` imports msg_store.
"""
