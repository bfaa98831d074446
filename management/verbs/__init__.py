"""The verbs by subject: users, vhosts, policies, queues, connections, health and others.

May import the modules of ``management`` below ``node_admin``.
"""
