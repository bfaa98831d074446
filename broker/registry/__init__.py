"""The registry of queues: an entry for each queue of a vhost, on whatever node the queue runs.

``registry`` has the entry, ``queue_settings`` the arguments and policies in effect, ``queue_types`` the arguments that
each type of queue takes, ``cluster_nodes`` the other nodes of a cluster and the entries of their queues. Channels,
vhosts and queues hold entries and do not ask on which node a queue runs.
May import ``broker.remote`` and the modules of ``broker`` itself.
"""
