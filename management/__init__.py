"""What operators ask of a broker, below the faces through which they ask.

``node_admin`` is all verbs of one node, ``verbs`` has them by subject, ``verb_table`` the form of their answers;
``operator_server`` carries them out for operators of other nodes. ``definitions`` and ``snapshots`` are what can be
exported and imported. The control socket, the command line and a service that embeds the broker have no rules of their
own.
May import ``broker`` and all below it.
"""
