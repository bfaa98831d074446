"""A node as a member of a cluster.

``queue_directory`` announces the queues of this node to the other nodes, and applies their announcements;
``cluster_rows`` receives changed rows of the shared metadata, and whether the node may serve clients;
``other_changes`` and ``other_settings`` apply rows that other nodes have written.
May import all of ``broker`` but ``tree``.
"""
