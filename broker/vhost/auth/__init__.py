"""Authentication and authorization: users and permissions (``access``), external services (``auth_backends``)."""
