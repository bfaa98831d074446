"""The node: what exists once per process, put together, and the supervision tree.

``node`` holds the objects, ``tree`` the actors, ``bootstrap`` fills both from the stored rows. Resources and
their watches, message stores, maintenance and snapshots are here too.
May import all of ``broker``.
"""
