"""The ring: what one member does, as pure state machines without I/O, clock or actors.

``view`` is the ring as a member sees it, ``streams`` what it knows of each publisher, ``news`` what its right neighbour
has not been sent, ``outbox`` who waits for its own publications to come round, ``newcomer`` its join, ``frames`` what
neighbours send each other, ``effects`` what a member wants done, ``limits`` its bounds, and ``member`` the machine
itself: its docstring is the theory.
Imports gm.records and core only.
"""
