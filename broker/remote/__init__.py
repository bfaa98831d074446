"""Mail of the broker's actors to actors on other nodes: its form on a link, and the gate of what is delivered there.

May import the modules of ``broker`` itself.
"""
