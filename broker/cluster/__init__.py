"""What a node does because it is one of a cluster.

``queue_directory`` tells the other nodes which queues run here, and hears the same from them; ``cluster_rows`` hears of
changed rows in the shared metadata and whether the node may serve; ``other_changes`` and ``other_settings`` apply what
other nodes wrote.
May import all of ``broker`` but ``tree``.
"""
