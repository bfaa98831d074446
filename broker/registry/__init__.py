"""Which queues there are, wherever they live.

``registry`` has an entry for each queue of a vhost, ``queue_settings`` what a queue was declared with and which policy
holds for it, ``queue_types`` the arguments each type of queue takes, ``cluster_nodes`` the other nodes of a cluster
and the entries of their queues. Channels, vhosts and queues hold entries and do not ask where a queue lives.
May import ``broker.remote`` and the modules of ``broker`` itself.
"""
