"""The ring: one member as pure state machines without I/O, clock or actors.

``view`` is the ring as a member sees it, ``streams`` its state of each publisher, ``news`` the publications and acks to
send to its right neighbour, ``outbox`` the broadcasts that wait for their confirms, ``newcomer`` its join, ``frames``
the messages between neighbours, ``effects`` the actions that a member asks of its driver, ``limits`` its bounds, and
``member`` the machine itself: its docstring is the theory.
Imports gm.records and core only.
"""
