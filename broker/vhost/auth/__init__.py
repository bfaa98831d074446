"""Who may do what in a vhost: users and permissions (``access``), and other sources of both (``auth_backends``)."""
