"""Reading of a connection's socket: when it is read and how much at once, and contents that nobody takes.

``read_control`` decides when a connection is read; ``throttle`` holds back what publishes during an alarm, and
``end_watch`` finds the peers that have ended meanwhile.
"""
